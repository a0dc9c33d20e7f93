package scrub

import (
	"bytes"
	"encoding/binary"
	"slices"
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
	if x.decoded == nil || bytes.IndexAny(b, introducers) < 0 {
		return nil
	}
	spans := x.decoded.All(Unescape(b))
	if len(spans) == 0 {
		return nil
	}
	var at []int
	unescape(b, &at)
	for i, s := range spans {
		spans[i] = Span{at[s.Start], at[s.End]}
	}
	return spans
}

// introducers are the characters that begin an escape.
const introducers = `%\&`

// Unescape decodes %5A, \u005a, \/, \", &#90;, &#x5a; and &amp; with its like. No escape holds the first character of
// another one, so that a text decodes alike from every position outside an escape.
func Unescape(b []byte) []byte { return unescape(b, nil) }

// unescape also returns where each decoded byte begins in b, and at last the end of b.
func unescape(b []byte, at *[]int) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		from, n := len(out), 0
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
		for _, r := range names {
			if bytes.HasPrefix(b[1:], r.name) {
				return append(out, r.char), 1 + len(r.name)
			}
		}
	}
	return out, 0
}

// names are the references without a number that escapers write. None begins with another one.
var names = []struct {
	name []byte
	char byte
}{{[]byte("amp;"), '&'}, {[]byte("lt;"), '<'}, {[]byte("gt;"), '>'}, {[]byte("quot;"), '"'}, {[]byte("apos;"), '\''}}

// reference appends the character of a numeric reference of HTML. Browsers accept one without a semicolon.
func reference(out, b []byte) ([]byte, int) {
	n, base := 2, 10
	if len(b) > n && b[n]|0x20 == 'x' {
		n, base = 3, 16
	}
	k := 0
	for n+k < len(b) && k <= maxDigits && digit(b[n+k]) < base {
		k++
	}
	c, ok := number(b[n:], k, base)
	if !ok {
		return out, 0
	}
	if n += k; n < len(b) && b[n] == ';' {
		n++
	}
	return utf8.AppendRune(out, c), n
}

// number reads a number of n digits, of up to maxDigits.
func number(b []byte, n, base int) (c rune, ok bool) {
	if n == 0 || n > min(len(b), maxDigits) {
		return 0, false
	}
	var sum int64
	for _, d := range b[:n] {
		v := digit(d)
		if v >= base {
			return 0, false
		}
		sum = sum*int64(base) + int64(v)
	}
	return rune(min(sum, utf8.MaxRune+1)), true
}

// digit returns the value of a hexadecimal digit, 16 for any other character.
func digit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return 16
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
