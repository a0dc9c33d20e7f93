// Package surrogate makes tokens that have the form of the personal data they replace, and finds them in text. Each
// is in a range that no person can own: a reserved domain, a fictional number, or a number that fails its check.
package surrogate

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"waldo/internal/detect"
	"waldo/internal/detect/checkdigit"
)

// The ranges in use.
const (
	person = "person-"
	domain = "@redacted.example" // RFC 2606
	block6 = "2001:db8::"        // RFC 3849, for documentation
	block4 = "240."              // RFC 1112, reserved
	iban   = "ZZ00"              // no country, and no check of ISO 7064 is 00
	card   = "9999"              // ISO/IEC 7812: no country has the code 999
	ssn    = "000"               // never issued
	abroad = "999"               // ITU-T E.164, not assigned
)

// longest limits the length of a surrogate, in bytes.
const longest = 80

// Make returns the surrogate of number n, from 1, in the form of a value. It reports false if the class has no
// reserved range for that form, or the range has no number n.
func Make(c detect.Class, value string, n int) (string, bool) {
	if n < 1 || n >= 1e9 || value == "" || len(value) > longest {
		return "", false
	}
	out := like(c, value, n)
	found := In(out)
	return out, len(found) == 1 && found[0] == detect.Find{End: len(out), Class: c}
}

// like returns what Make does; "" if absent.
func like(c detect.Class, value string, n int) string {
	digits, plain := digitsOf(value)
	switch {
	case c == detect.Email && strings.Contains(value, "@"):
		return person + strconv.Itoa(n) + domain
	case c == detect.IPv6:
		return fmt.Sprintf("%s%x:%x", block6, n>>16, n&0xffff)
	case c == detect.IBAN:
		return account(value, n)
	case c == detect.Wallet:
		return wallet(value, n)
	case !plain || len(digits) < 4:
		return ""
	case c == detect.IP && n < 1<<24:
		return fmt.Sprintf("%s%d.%d.%d", block4, n>>16, n>>8&255, n&255)
	case c == detect.Card:
		digits = count(card, n, len(digits)-1)
		wrong := "0"
		if digits != "" && checkdigit.Luhn([]byte(digits+wrong)) {
			wrong = "1"
		}
		return fill(value, digits+wrong)
	case c == detect.SSN:
		return fill(value, count(ssn, n, len(digits)))
	case c == detect.Phone:
		return fill(value, telephone(value, digits, n))
	}
	return ""
}

// digitsOf returns the digits of a number, and whether the rest are separators.
func digitsOf(s string) (string, bool) {
	var out []byte
	for i := range len(s) {
		if isDigit(s[i]) {
			out = append(out, s[i])
		} else if !separates(s[i]) {
			return "", false
		}
	}
	return string(out), true
}

// fill puts digits in place of those of a value. It returns "" if there is not one for each.
func fill(value, digits string) string {
	if own, _ := digitsOf(value); len(own) != len(digits) {
		return ""
	}
	out := []byte(value)
	for i, c := range out {
		if isDigit(c) {
			out[i], digits = digits[0], digits[1:]
		}
	}
	return string(out)
}

// count returns n behind a prefix, in size digits; "" if it does not fit.
func count(prefix string, n, size int) string {
	room := size - len(prefix)
	if s := strconv.Itoa(n); len(s) <= room {
		return prefix + strings.Repeat("0", room-len(s)) + s
	}
	return ""
}

// telephone returns the digits of a fictional number. Without a country code only North American numbers have such a
// range: 555-0100 to 555-0199, here in area codes that are not assigned.
func telephone(value, digits string, n int) string {
	code := ""
	switch {
	case len(digits) == 11 && digits[0] == '1':
		code = "1"
	case value[0] == '+':
		return count(abroad, n, len(digits))
	case strings.HasPrefix(digits, "00"):
		return count("00"+abroad, n, len(digits))
	case len(digits) != 10 || digits[0] < '2' || !northAmerican(value):
		return ""
	}
	area, last := (n-1)/100, (n-1)%100
	if area > 80 {
		return ""
	}
	prefix := "555"
	if area > 0 {
		prefix = fmt.Sprintf("%d9%d", 2+(area-1)/10, (area-1)%10)
	}
	return fmt.Sprintf("%s%s55501%02d", code, prefix, last)
}

// northAmerican reports whether ten digits are in groups of three, three and four, or in one.
func northAmerican(value string) bool {
	return value[0] != '+' && slices.Contains([]string{"3-3-4", "10"}, sizes(value))
}

// sizes returns the lengths of the groups of digits, as in 3-3-4.
func sizes(s string) string {
	var out []string
	for _, g := range strings.FieldsFunc(s, func(r rune) bool { return r < '0' || r > '9' }) {
		out = append(out, strconv.Itoa(len(g)))
	}
	return strings.Join(out, "-")
}

// account returns an account number with the separators of the value, X for its letters, and a check that fails.
func account(value string, n int) string {
	out, left := []byte(value), strconv.Itoa(n)
	for i := len(out) - 1; i >= len(iban); i-- {
		switch c := out[i]; {
		case isDigit(c) && left != "":
			out[i], left = left[len(left)-1], left[:len(left)-1]
		case isDigit(c):
			out[i] = '0'
		case isAlnum(c):
			out[i] = 'X'
		}
	}
	if left != "" {
		return ""
	}
	return iban + string(out[min(len(out), len(iban)):])
}

// wallet returns a wallet address of the same length and kind whose check fails.
func wallet(value string, n int) string {
	kind := value[:1]
	if strings.HasPrefix(value, "bc1") {
		kind = "bc1"
	}
	number := strconv.Itoa(n)
	out := kind + strings.Repeat("o", max(0, len(value)-len(kind)-len(number))) + number
	if checkdigit.Base58([]byte(out)) {
		return ""
	}
	return out
}

// forms are the forms of the surrogates that are not numbers in groups, with their beginning.
var forms = []struct {
	class  detect.Class
	prefix string
	form   *regexp.Regexp
}{
	{detect.Email, person, regexp.MustCompile(`^person-[1-9][0-9]{0,8}@redacted\.example`)},
	{detect.IPv6, block6, regexp.MustCompile(`^2001:db8::[0-9a-f]{1,4}:[0-9a-f]{1,4}`)},
	{detect.IP, block4, regexp.MustCompile(`^240(?:\.[0-9]{1,3}){3}`)},
	{detect.IBAN, iban, regexp.MustCompile(`^ZZ00(?:[-. \t\n+]{0,3}[X0-9]){11,30}`)},
	{detect.Wallet, "bc1oooooooo", regexp.MustCompile(`^bc1o{8,60}[1-9][0-9]*`)},
	{detect.Wallet, "1oooooooo", regexp.MustCompile(`^1o{8,60}[1-9][0-9]*`)},
	{detect.Wallet, "3oooooooo", regexp.MustCompile(`^3o{8,60}[1-9][0-9]*`)},
}

// numberForm returns the class of s, which has the digits d in groups. The text around must not change the answer, so
// a check digit does not count.
func numberForm(s string, d []byte) detect.Class {
	n, plus := len(d), s[0] == '+'
	national := bytes.TrimPrefix(d, []byte("1"))
	switch {
	case n < 7 || n > 19:
	case plus && bytes.HasPrefix(d, []byte(abroad)) && n <= 15, bytes.HasPrefix(d, []byte("00"+abroad)) && n <= 17:
		return detect.Phone
	case len(national) == 10 && string(national[3:8]) == "55501" && (n == 11 || !plus) &&
		(string(national[:3]) == "555" || national[0] >= '2' && national[1] == '9'):
		return detect.Phone
	case plus:
	case bytes.HasPrefix(d, []byte(card)) && n >= 12:
		return detect.Card
	case bytes.HasPrefix(d, []byte(ssn)) && n == 9 && slices.Contains([]string{"3-2-4", "3-6", "5-4", "9"}, sizes(s)):
		return detect.SSN
	}
	return ""
}

// In returns the parts of a text that have the form of a surrogate, issued or not, the longest at each place.
func In(s string) (out []detect.Find) {
	for i := 0; i < len(s); i++ {
		if !begins(s, i) {
			continue
		}
		if c, end := at(s, i); c != "" {
			out = append(out, detect.Find{Start: i, End: end, Class: c})
			i = end - 1
		}
	}
	return out
}

// begins reports whether a surrogate may begin at i: no other word or number may go on there.
func begins(s string, i int) bool {
	if c := s[i]; !isDigit(c) && strings.IndexByte("+(pZb", c) < 0 {
		return false
	}
	return i == 0 || !isAlnum(s[i-1]) && s[i-1] < 0x80 && strings.IndexByte("_.%+-:", s[i-1]) < 0
}

// at returns the class and the end of the surrogate at i.
func at(s string, i int) (detect.Class, int) {
	t := s[i:min(len(s), i+longest)]
	for _, f := range forms {
		if !strings.HasPrefix(t, f.prefix) {
			continue
		}
		if m := f.form.FindString(t); m != "" && ends(s, i+len(m)) {
			return f.class, i + len(m)
		}
	}
	var room [20]byte
	d, class, end := room[:0], "", i
	for k := 0; k < len(t) && len(d) < len(room); k++ {
		if isDigit(t[k]) {
			d = append(d, t[k])
			if c := numberForm(t[:k+1], d); c != "" && ends(s, i+k+1) {
				class, end = c, i+k+1
			}
		} else if !separates(t[k]) {
			break
		}
	}
	return class, end
}

// ends reports whether a surrogate may end before i.
func ends(s string, i int) bool {
	if i == len(s) {
		return true
	}
	if c := s[i]; isAlnum(c) || c >= 0x80 || c == '_' || c == '@' || c == '%' {
		return false
	}
	return i+1 == len(s) || strings.IndexByte(".-:/+", s[i]) < 0 || !isAlnum(s[i+1])
}

func separates(c byte) bool { return strings.IndexByte(" -.()+/\t\n", c) >= 0 }
func isDigit(c byte) bool   { return c >= '0' && c <= '9' }
func isAlnum(c byte) bool   { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'z' }
