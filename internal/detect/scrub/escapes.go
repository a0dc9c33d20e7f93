package scrub

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxEscape is the length of the longest escape that Unescape decodes: &#x0000005a;.
const maxEscape = 3 + maxDigits + 1

// maxDigits limits the digits of an HTML escape, leading zeros among them. Without a limit a text has no longest
// spelling.
const maxDigits = 8

// Escaped makes the index find a text in which any characters are written as escapes of URLs, JSON and HTML, in any
// mixture. Call it before the index is used.
func (x *Index) Escaped(text string) {
	for _, t := range []string{text, strings.ReplaceAll(text, `\`, `\\`), strings.ReplaceAll(text, " ", "+")} {
		// a text that holds what looks like an escape is looked for decoded, too
		for _, t := range []string{t, string(Unescape([]byte(t)))} {
			if !slices.Contains(x.plain, t) {
				x.plain = append(x.plain, t)
			}
			x.longest = max(x.longest, maxEscape*len(t))
		}
	}
	x.decoded = NewIndex(x.plain)
}

// inEscapes returns every match in the decoded text of b, in positions of b.
func (x *Index) inEscapes(b []byte) []Span {
	if x.decoded == nil || bytes.IndexAny(b, `%\&`) < 0 {
		return nil
	}
	var at []int
	spans := x.decoded.All(unescape(b, &at))
	for i, s := range spans {
		spans[i] = Span{at[s.Start], at[s.End]}
	}
	return spans
}

// Unescape decodes %5A, \u005a, \/, \", &#90;, &#x5a; and &amp; with its like. No escape holds the first character of
// another one, so that a text decodes alike from every position outside an escape.
func Unescape(b []byte) []byte { return unescape(b, nil) }

// unescape also returns where each decoded byte begins in b, and at last the end of b.
func unescape(b []byte, at *[]int) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		from := len(out)
		n := 0
		switch b[i] {
		case '%', '\\', '&':
			out, n = escape(out, b[i:])
		}
		if n == 0 {
			out, n = append(out, b[i]), 1
		}
		if at != nil {
			for range len(out) - from {
				*at = append(*at, i)
			}
		}
		i += n
	}
	if at != nil {
		*at = append(*at, len(b))
	}
	return out
}

// escape appends the character of the escape at the start of b, and returns the escape's length. Without one it
// returns 0.
func escape(out, b []byte) ([]byte, int) {
	switch {
	case b[0] == '%':
		if c, ok := number(b[1:], 2, 16); ok {
			return append(out, byte(c)), 3
		}
	case b[0] == '\\' && len(b) > 1 && (b[1] == '/' || b[1] == '"'):
		return append(out, b[1]), 2
	case bytes.HasPrefix(b, []byte(`\u`)):
		if c, ok := number(b[2:], 4, 16); ok {
			return utf8.AppendRune(out, c), 6
		}
	case bytes.HasPrefix(b, []byte("&#")):
		return reference(out, b)
	case b[0] == '&':
		for name, c := range names {
			if bytes.HasPrefix(b, []byte(name)) {
				return append(out, c), len(name)
			}
		}
	}
	return out, 0
}

// names are the references without a number that escapers write. None begins with another one.
var names = map[string]byte{"&amp;": '&', "&lt;": '<', "&gt;": '>', "&quot;": '"', "&apos;": '\''}

// reference appends the character of a numeric reference of HTML. Browsers accept one without a semicolon.
func reference(out, b []byte) ([]byte, int) {
	n, base, digits := 2, 10, "0123456789"
	if len(b) > n && b[n]|0x20 == 'x' {
		n, base, digits = 3, 16, "0123456789abcdefABCDEF"
	}
	k := 0
	for n+k < len(b) && k <= maxDigits && strings.IndexByte(digits, b[n+k]) >= 0 {
		k++
	}
	c, ok := number(b[n:], k, base)
	if !ok || k > maxDigits {
		return out, 0
	}
	if n += k; n < len(b) && b[n] == ';' {
		n++
	}
	return utf8.AppendRune(out, c), n
}

// number reads a number of n digits.
func number(b []byte, n, base int) (rune, bool) {
	if n > len(b) {
		return 0, false
	}
	c, err := strconv.ParseUint(string(b[:n]), base, 32)
	return rune(min(c, utf8.MaxRune+1)), err == nil
}

// Wide returns a text in UTF-16, in either order of bytes, without the zero bytes at its ends.
func Wide(s string) (out []string) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		var b []byte
		for _, u := range utf16.Encode([]rune(s)) {
			b = order.AppendUint16(b, u)
		}
		out = append(out, strings.Trim(string(b), "\x00"))
	}
	return out
}
