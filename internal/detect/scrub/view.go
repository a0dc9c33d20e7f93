package scrub

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"waldo/internal/detect/unseen"
)

// viewDepth is how many layers of escapes are looked through: JSON in JSON in JSON has three.
const viewDepth = 4

// identity returns the positions of a text that is its own view.
func identity(n int) []int32 {
	pos := make([]int32, n+1)
	for i := range pos {
		pos[i] = int32(i)
	}
	return pos
}

// original returns the part of the original text for a part of a view.
func original(s Span, pos []int32) Span { return Span{int(pos[s.Start]), int(pos[s.End])} }

// escaped reports whether unescape might change the text.
func escaped(t []byte) bool {
	for _, c := range t {
		if special[c] && c != '\'' {
			return true
		}
	}
	return bytes.Contains(t, []byte(`'\''`)) || bytes.Contains(t, []byte(`'"'"'`))
}

// view decodes one layer of the escapes of t. It also returns the position in the original text of each byte and of
// the end, given pos for t.
func view(t []byte, loose bool, pos []int32) ([]byte, []int32) {
	out := make([]int32, 0, len(t)+1)
	v := unescape(t, loose, pos, &out)
	return v, append(out, pos[len(t)])
}

// Decoded returns a text without its escapes, in all layers, and for each byte and the end the position in t. Nil: the
// text has none, or the positions are not asked for.
func Decoded(t []byte, positions bool) (v []byte, pos []int32) {
	v = t
	for range viewDepth {
		if !escaped(v) {
			break
		}
		next := unescape(v, false, nil, nil)
		if bytes.Equal(next, v) { // nor would another layer change it: prose with letters beyond ASCII needs no positions
			break
		}
		if positions {
			if pos == nil {
				pos = identity(len(t))
			}
			next, pos = view(v, false, pos)
		}
		v = next
	}
	return v, pos
}

// unescape undoes one layer of backslash, percent, entity and shell escapes, drops what cannot be
// seen, and spells look-alike letters and digits in ASCII. With out it notes where in the
// original each byte comes from.
//
// Loose, an escape counts wherever it begins: what stands before it, as a backslash or the introducer of a terminal's
// sequence, takes nothing from it. Who writes that text chooses the bytes before a secret.
func unescape(t []byte, loose bool, pos []int32, out *[]int32) []byte {
	v := make([]byte, 0, len(t))
	for i := 0; i < len(t); {
		j := i
		for j < len(t) && !special[t[j]] {
			j++
		}
		if j > i {
			v = append(v, t[i:j]...)
			if out != nil {
				*out = append(*out, pos[i:j]...)
			}
			if i = j; i == len(t) {
				break
			}
		}
		n := len(v)
		c, size := t[i], 1
		switch {
		case c == '\\':
			v, size = backslash(v, t[i:], loose)
		case c == '%' && i+2 < len(t) && hexval(t[i+1]) >= 0 && hexval(t[i+2]) >= 0:
			v, size = append(v, byte(hexval(t[i+1])<<4|hexval(t[i+2]))), 3
		case c == '&':
			v, size = entity(v, t[i:])
		case c == '\'' && (bytes.HasPrefix(t[i:], []byte(`'\''`)) || bytes.HasPrefix(t[i:], []byte(`'"'"'`))):
			v, size = append(v, '\''), 4+bytes.Count(t[i+1:i+2], []byte(`"`))
		case c == 0x1b:
			if !loose {
				size = unseen.Escape(t[i:])
			}
		case c == '\b':
			if len(v) > 0 {
				v = v[:len(v)-1]
			}
		case c < 0x20 && c != '\n' && c != '\t' && c != '\r':
		case c >= 0x80:
			v, size = plainRune(v, t[i:])
		default:
			v = append(v, c)
		}
		if out != nil {
			*out = (*out)[:min(n, len(v))]
			for len(*out) < len(v) {
				*out = append(*out, pos[i])
			}
		}
		i += size
	}
	return v
}

func hexval(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// number reads up to n digits of the base and returns the value and how many there were.
func number(t []byte, base, n int) (value, size int) {
	for size < n && size < len(t) {
		d := hexval(t[size])
		if d < 0 || d >= base {
			break
		}
		value, size = value*base+d, size+1
	}
	return value, size
}

// backslash appends the decoded escape at the start of t and returns its length.
func backslash(v, t []byte, loose bool) ([]byte, int) {
	if len(t) < 2 {
		return append(v, '\\'), 1
	}
	switch c := t[1]; c {
	case 'u', 'U':
		return unicodeEscape(v, t)
	case 'x':
		if r, n := number(t[2:], 16, 2); n == 2 {
			return append(v, byte(r)), 4
		}
	case '0', '1', '2', '3':
		if r, n := number(t[1:], 8, 3); n == 3 {
			return append(v, byte(r)), 4
		}
	case 'n':
		return append(v, '\n'), 2
	case 'r':
		return append(v, '\r'), 2
	case 't':
		return append(v, '\t'), 2
	}
	if loose {
		return v, 1
	}
	return append(v, t[1]), 2
}

// unicodeEscape reads \uXXXX, a pair of surrogates, or \UXXXXXXXX.
func unicodeEscape(v, t []byte) ([]byte, int) {
	want := 4
	if t[1] == 'U' {
		want = 8
	}
	r, n := number(t[2:], 16, want)
	if n != want {
		return append(v, t[1]), 2
	}
	size := 2 + n
	if r >= 0xD800 && r < 0xDC00 && len(t) >= 12 && t[6] == '\\' && t[7] == 'u' {
		if lo, n := number(t[8:], 16, 4); n == 4 && lo >= 0xDC00 && lo < 0xE000 {
			r, size = 0x10000+(r-0xD800)<<10+(lo-0xDC00), 12
		}
	}
	v, _ = plainRune(v, []byte(string(rune(r))))
	return v, size
}

var entities = []struct{ name, text string }{
	{"&amp;", "&"}, {"&quot;", `"`}, {"&lt;", "<"}, {"&gt;", ">"}, {"&apos;", "'"}, {"&nbsp;", " "},
}

// maxDigits limits the digits of an HTML entity, leading zeros among them. Without a limit a text has no longest
// spelling.
const maxDigits = 8

// entity appends the decoded HTML entity at the start of t and returns its length. Browsers accept a number without a
// semicolon.
func entity(v, t []byte) ([]byte, int) {
	for _, e := range entities {
		if bytes.HasPrefix(t, []byte(e.name)) {
			return append(v, e.text...), len(e.name)
		}
	}
	if len(t) < 3 || t[1] != '#' {
		return append(v, '&'), 1
	}
	n, base := 2, 10
	if t[2]|0x20 == 'x' {
		n, base = 3, 16
	}
	r, size := number(t[n:], base, maxDigits+1)
	if size == 0 || size > maxDigits || r > utf8.MaxRune {
		return append(v, '&'), 1
	}
	if n += size; n < len(t) && t[n] == ';' {
		n++
	}
	v, _ = plainRune(v, []byte(string(rune(r))))
	return v, n
}

// plainRune appends the ASCII that the first rune of t looks like, nothing if it is invisible, or else the rune
// itself. It returns the rune's length.
func plainRune(v, t []byte) ([]byte, int) {
	r, size := utf8.DecodeRune(t)
	switch p := unseen.Plain(r); {
	case r == utf8.RuneError && size <= 1:
		return append(v, t[0]), 1
	case p != r:
		return append(v, byte(p)), size
	case r >= 0x300 && r <= 0x36F, unseen.Hidden(r), r == 0x200C, r == 0x200D, r >= 0xFE00 && r <= 0xFE0F:
		return v, size
	}
	return append(v, t[:size]...), size
}

// letters maps letters and digits to themselves in lower case, and the rest to 0.
var letters = func() (t [256]byte) {
	for c := range t {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z':
			t[c] = byte(c)
		case c >= 'A' && c <= 'Z':
			t[c] = byte(c) + 'a' - 'A'
		}
	}
	return t
}()

// Squeeze returns the letters and digits of ASCII in s, in lower case.
func Squeeze(s string) string { return string(squeeze(nil, []byte(s))) }

// squeeze appends to buf the letters and digits of ASCII in t, in lower case.
func squeeze(buf, t []byte) []byte {
	out := slices.Grow(buf, len(t))[:len(t)]
	n := 0
	for _, c := range t {
		l := letters[c]
		out[n] = l
		if l != 0 {
			n++
		}
	}
	return out[:n]
}

// looks holds for each byte its letter, as letters does. Higher bits say whether it is one, and whether unescape
// might do more than copy it.
var looks = func() (t [256]uint16) {
	for c := range t {
		if l := letters[c]; l != 0 {
			t[c] = isLetter | uint16(l)
		}
		if special[c] {
			t[c] |= mayEscape
		}
	}
	return t
}()

const isLetter, mayEscape = 1 << 8, 1 << 9

// squeezeAndLook is squeeze, and reports in the same pass whether unescape might change the text.
func squeezeAndLook(buf, t []byte) ([]byte, bool) {
	out := slices.Grow(buf, len(t))[:len(t)]
	n, all := 0, uint16(0)
	for _, c := range t {
		l := looks[c]
		all |= l
		out[n] = byte(l)
		n += int(l>>8) & 1
	}
	return out[:n], all&mayEscape != 0
}

// squeezeMap is squeeze with the position in t of each byte.
func squeezeMap(t []byte) ([]byte, []int32) {
	q := squeeze(nil, t)
	where := make([]int32, 0, len(q))
	for i, c := range t {
		if letters[c] != 0 {
			where = append(where, int32(i))
		}
	}
	return q, where
}

// ambiguous reports whether a loose reading of t might differ.
func ambiguous(t []byte) bool {
	return bytes.IndexByte(t, 0x1b) >= 0 || bytes.Contains(t, []byte(`\\`)) || bytes.Contains(t, []byte(`\&`)) ||
		bytes.Contains(t, []byte(`\%`))
}

// special marks the bytes at which unescape does more than copy.
var special = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 0x80 || c < 0x20 && c != '\n' && c != '\t' && c != '\r' || c == '\\' || c == '%' || c == '&' || c == '\''
	}
	return t
}()
