// Package words distinguishes names and words of source code from random text.
package words

import (
	"bytes"
	"strings"

	"waldo/internal/detect/data"
)

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isAlpha(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isAlnum(c byte) bool { return isDigit(c) || isAlpha(c) }

// Strong names always have a secret value; weak names require a value that looks random. Both match letters and
// digits of the name only. A name that ends with an about word describes a secret but does not contain one.
var (
	strong, weak, about = flat("strong"), flat("weak"), flat("about")
	settings, asked     = flat("setting"), flat("ask")
)

// flat returns the words of a kind without the dashes.
func flat(kind string) [][]byte {
	names := data.Names(kind)
	for i, n := range names {
		names[i] = strings.ReplaceAll(n, "-", "")
	}
	return split(names...)
}

func split(words ...string) [][]byte {
	out := make([][]byte, len(words))
	for i, w := range words {
		out[i] = []byte(w)
	}
	return out
}

// letters appends the letters and digits of a name to flat, in lower case.
func letters(flat []byte, name string) []byte {
	for i := range len(name) {
		c := name[i]
		if isUpper(c) {
			c |= 0x20
		}
		if isAlnum(c) {
			flat = append(flat, c)
		}
	}
	return flat
}

// Setting reports whether the name of a variable, flag or header suggests a secret. It adds connection addresses and
// strings, which contain a password, to the names of Secrecy.
func Setting(name string) bool {
	if Secrecy([]byte(name)) > 0 || HasWord([]byte(name), settings) {
		return true
	}
	f := letters(nil, name)
	for _, w := range settings {
		if len(w) > 4 && bytes.HasSuffix(f, w) {
			return true
		}
	}
	return false
}

// Asks reports whether the name or title of a field asks for a secret. Describing words do not excuse it: a field can
// have any name.
func Asks(name string) bool {
	f := letters(nil, name)
	for _, w := range strong {
		if bytes.Contains(f, w) && !crossing(w, []byte(name)) {
			return true
		}
	}
	return bytes.Contains(f, []byte("token")) || HasWord([]byte(name), asked)
}

// Secrecy returns how surely a name has a secret value: 2 strong, 1 weak, 0 not at all. A strong name matches
// anywhere. A weak one must be a whole word: "author" does not match "auth", nor "monkey" "key".
func Secrecy(name []byte) int {
	if len(name) < 3 || len(name) > 128 {
		return 0
	}
	var buf [128]byte
	flat := buf[:0]
	for _, c := range name {
		if isUpper(c) {
			c |= 0x20
		}
		if isAlnum(c) {
			flat = append(flat, c)
		}
	}
	level := 0
	for _, k := range strong {
		if i := bytes.Index(flat, k); i >= 0 && !bytes.HasPrefix(flat[i:], []byte("secretar")) && !crossing(k, name) {
			level = 2
			break
		}
	}
	if level == 0 && (bytes.Contains(flat, []byte("token")) || HasWord(name, weak)) {
		level = 1
	}
	if level == 0 {
		return 0
	}
	for _, w := range about {
		if len(flat) > len(w) && bytes.HasSuffix(flat, w) && lastWord(name, w) {
			return 0
		}
	}
	return level
}

// crossing reports whether a short strong name occurs only across words of a name: PW_D_STATUS.
func crossing(k, name []byte) bool {
	return len(k) == 3 && !bytes.Contains(bytes.ToLower(name), k)
}

// HasWord reports whether a name in snake, kebab or camel case contains one of the words.
func HasWord(name []byte, words [][]byte) bool {
	start := 0
	for i := 1; i <= len(name); i++ {
		end := i == len(name) || !isAlnum(name[i]) || name[i] >= 'A' && name[i] <= 'Z' &&
			(name[i-1] >= 'a' || i+1 < len(name) && name[i+1] >= 'a')
		if !end {
			continue
		}
		for start < i && !isAlnum(name[start]) {
			start++
		}
		w := name[start:i]
		for _, k := range words {
			if len(w) == len(k) && bytes.EqualFold(w, k) {
				return true
			}
		}
		start = i
	}
	return false
}

// lastWord reports whether w is the last word of a name in snake, kebab or camel case.
func lastWord(name, w []byte) bool {
	n := len(name) - len(w)
	if n <= 0 || !bytes.EqualFold(name[n:], w) {
		return false
	}
	return !isAlpha(name[n-1]) || name[n] >= 'A' && name[n] <= 'Z' && name[n-1] >= 'a'
}

// Code reports whether a bare value is source code instead of a secret. It accepts a dotted or camel-case name
// (self.password, clientSecret), a call or an index (itemgetter(0), certs[0]), or a number. Its words show that: a
// random secret has none.
func Code(val []byte) bool {
	if val = bytes.TrimLeft(val, "!&*+(@#~:-"); len(val) == 0 || isNumber(val) || bytes.Contains(val, []byte("this.")) {
		return true
	}
	name, rest, parts := expression(val)
	words := Wordy(bytes.TrimRight(name, "0123456789"))
	switch {
	case len(name) == 0, !isAlpha(name[0]) && name[0] != '_' && name[0] != '$':
		return false
	case len(rest) > 0 && (rest[0] == '(' || rest[0] == '['):
		return words || strings.IndexByte(string(name), '.') > 0 || strings.IndexByte(string(name), '_') >= 0 ||
			len(name) == 1
	case len(rest) > 0 && rest[0] == '{':
		return words && (len(rest) < 3 || Wordy(rest))
	case len(rest) > 0:
		return words && strings.IndexByte("|/<", rest[0]) >= 0 && Wordy(rest)
	}
	return Wordy(name) && (parts || Secrecy(name) > 0 && !bytes.ContainsAny(name, "0123456789"))
}

// Call reports whether a bare value before a bracket or a comma is the start of a call: cmdKey768Gen(.
func Call(val []byte) bool {
	name, rest, parts := expression(val)
	if !parts || !isAlpha(val[0]) || len(rest) == 0 || rest[0] != '(' {
		return false
	}
	_, more, _ := expression(rest[1:])
	return len(more) == 0 && Kinds(name) > 3
}

// expression splits a value into its leading name and the rest, and reports whether the name has parts.
func expression(val []byte) (name, rest []byte, parts bool) {
	end := 0
	for end < len(val) && (isAlnum(val[end]) || strings.IndexByte("_.:$?>#-", val[end]) >= 0) {
		parts = parts || end > 0 && (strings.IndexByte("_.:>", val[end]) >= 0 || isUpper(val[end]) && !isUpper(val[end-1]))
		end++
	}
	return val[:end], val[end:], parts
}

// follows are words that continue a sentence about a flag, after its name.
var follows = split("option", "options", "flag", "flags", "argument", "arguments", "parameter",
	"parameters", "value", "values",
	"is", "are", "and", "for", "with", "when", "from", "via", "can", "must", "will", "has", "was", "may", "should",
	"instead", "because",
	"that", "which", "unless")

// Follows reports whether a word after a flag's name continues a sentence: --password is read from a file.
func Follows(val []byte) bool { return HasWord(val, follows) && bytes.IndexByte(val, '-') < 0 }

// public are the first characters of public keys, in base64, and of checksums of Go modules.
var public = split("MFkwEwYHKoZIzj0CAQYI", "MHYwEAYHKoZIzj0CAQYF", "MIIBIjANBgkqhkiG9w0BAQE", "MIICIjANBgkqhkiG9w0BAQE",
	"MCowBQYDK2Vw", "AAAAB3NzaC1yc2E", "AAAAC3NzaC1lZDI1NTE5", "AAAAE2VjZHNhLXNoYTI")

// Public reports whether a value begins like a public key, which is not a secret.
func Public(val []byte) bool {
	for _, p := range public {
		if bytes.HasPrefix(val, p) {
			return true
		}
	}
	return false
}

// Named reports whether a quoted value is itself the name of a secret, in more than one word: "refresh_token".
func Named(val []byte) bool {
	val = bytes.TrimRight(val, "_0123456789")
	return Secrecy(val) > 0 && !bytes.ContainsAny(val, "0123456789") && Wordy(val) &&
		(bytes.ContainsAny(val, "_-.") || len(val) < 30 && Camel(val))
}

// Titled reports whether a value is a sentence that begins with its own name: "Password for the key".
func Titled(val, name []byte) bool {
	return bytes.Count(val, []byte(" ")) >= 2 && len(val) > len(name) && bytes.EqualFold(val[:len(name)], name) &&
		val[len(name)] == ' ' &&
		Wordy(val) && !bytes.ContainsAny(val, "0123456789")
}

// Camel reports whether a capital follows another character.
func Camel(b []byte) bool {
	for i := 1; i < len(b); i++ {
		if isUpper(b[i]) && !isUpper(b[i-1]) {
			return true
		}
	}
	return false
}

// Closing reports whether a quote before an assumed value ends a text: 'Password: ', and more.
func Closing(val []byte) bool {
	return len(val) > 1 && (val[0] == ',' && val[1] == ' ' || val[0] == ')' ||
		val[0] == '+' && bytes.IndexByte(val, ')') > 0 && Code(val))
}

func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }

// isNumber reports whether val is a number as source code writes one: 0x02, 0o666.
func isNumber(val []byte) bool {
	if len(val) < 3 || len(val) > 18 || val[0] != '0' || strings.IndexByte("xob", val[1]) < 0 {
		return false
	}
	for _, c := range val[2:] {
		if !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'f') && c != '_' {
			return false
		}
	}
	return true
}

// sizes are numbers that end words of source code: sha256, utf8, ed25519, x509, PKCS1, int32.
var sizes = split("16", "32", "64", "128", "256", "384", "509", "512", "768", "1024", "2048", "4096", "25519")

// sized returns how many digits at i form a size number that ends a word, or 0.
func sized(b []byte, i int) int {
	if i == 0 || !isAlpha(b[i-1]) {
		return 0
	}
	n := i
	for n < len(b) && isDigit(b[n]) {
		n++
	}
	if n == i+1 && i > 1 && isAlpha(b[i-2]) {
		return 1
	}
	for _, s := range sizes {
		if bytes.Equal(b[i:n], s) {
			return n - i
		}
	}
	return 0
}

// Wordy reports whether the letters of a text form words: runs of one case, or of one capital and small letters. The
// mean length must be three or more, with at most one number inside a word. Random text changes its character class
// sooner.
func Wordy(b []byte) bool {
	letters, runs, digits, inside := 0, 0, 0, 0
	for i, skip := 0, 0; i < len(b); i++ {
		c := b[i]
		if skip--; skip > 0 {
			continue
		}
		switch {
		case isDigit(c) && sized(b, i) > 0:
			skip = sized(b, i)
		case isDigit(c):
			if digits++; i == 0 || !isDigit(b[i-1]) {
				runs++
			}
		case isAlpha(c):
			letters++
			if c >= 'a' && i > 0 && isDigit(b[i-1]) {
				inside++
			}
			if i == 0 || !isAlpha(b[i-1]) || isUpper(c) && !isUpper(b[i-1]) ||
				!isUpper(c) && isUpper(b[i-1]) && i > 1 && isUpper(b[i-2]) {
				runs++
			}
		}
	}
	return letters > 0 && inside <= 1 && digits*2 <= letters && letters+digits >= 3*runs
}

// Kinds counts the different bytes in b.
func Kinds(b []byte) (n int) {
	var seen [256]bool
	for _, c := range b {
		if !seen[c] {
			seen[c] = true
			n++
		}
	}
	return n
}

// Filler reports whether a text is mostly x or asterisks.
func Filler(b []byte) bool {
	n := bytes.Count(b, []byte("x")) + bytes.Count(b, []byte("X")) + bytes.Count(b, []byte("*"))
	return n*10 > len(b)*6
}

// Version reports whether a value is the number of a release: ^1.2.1.
func Version(s string) bool {
	s = strings.TrimLeft(s, "^~v=")
	return strings.Count(s, ".") >= 2 && len(s) < 24 && strings.Trim(s, "0123456789.") == ""
}
