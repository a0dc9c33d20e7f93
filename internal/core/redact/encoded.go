package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"unicode/utf8"

	"waldo/internal/detect"
	"waldo/internal/detect/scrub"
)

// Bounds of the search in base64 and hexadecimal, in bytes.
const (
	minEncoded  = 12      // of one run; six bytes of personal data are in it
	maxEncoded  = 1 << 20 // of all runs of one text that are decoded
	lookEncoded = 12      // of the beginning that is decoded first: most runs are no text
	deepEncoded = 2       // runs in runs
	minWrapped  = 20      // of a line that has a next one
	maxBreak    = 12      // between two lines: the break, an indent, a mark of a quotation
)

// encoded finds runs of base64 and hexadecimal whose text has personal data. Each is hidden whole, so that a token
// restores it as it was. Secrets are found in them by their value alone.
func (p *pass) encoded(t []byte) []detect.Find {
	if !p.hidesPersons() {
		return nil
	}
	room := maxEncoded
	return p.encodedIn(t, deepEncoded, &room)
}

func (p *pass) encodedIn(t []byte, depth int, room *int) (out []detect.Find) {
	joined := 0 // the end of the lines that were joined without a find
	for i := 0; i < len(t); {
		if !base64Byte[t[i]] {
			i++
			continue
		}
		end := i + 1
		for end < len(t) && base64Byte[t[end]] {
			end++
		}
		if end-i >= minEncoded {
			f, ok := p.run(t[i:end], depth, room)
			if !ok && i >= joined {
				var all []byte
				if all, joined = lines(t, i, end); joined > end {
					if f, ok = p.run(all, depth, room); ok {
						f.Start, end = 0, joined
					}
				}
			}
			if ok {
				tail := bytes.IndexFunc(t[end:], func(r rune) bool { return r != '=' })
				if tail < 0 {
					tail = len(t) - end
				}
				out = append(out, detect.Find{Start: i + f.Start, End: end + min(tail, 2), Class: f.Class})
			}
		}
		i = end
	}
	return out
}

// lines joins the run from i to end with those of the lines below it, as base64 is wrapped: each is as long as the
// first one, but the last. It returns the joined run and where it ends in the text.
func lines(t []byte, i, end int) ([]byte, int) {
	size, joined := end-i, t[i:end:end]
	if size < minWrapped {
		return joined, end
	}
	for {
		next := end
		for next < len(t) && next-end < maxBreak && !base64Byte[t[next]] {
			next++
		}
		last := next
		for last < len(t) && base64Byte[t[last]] {
			last++
		}
		if last == next || last-next > size || bytes.IndexByte(t[end:next], '\n') < 0 {
			return joined, end
		}
		joined, end = append(joined, t[next:last]...), last
		if last-next < size {
			return joined, end
		}
	}
}

// run looks into one run. Other characters of the alphabet can stand before what was encoded, as in a path.
func (p *pass) run(r []byte, depth int, room *int) (detect.Find, bool) {
	for from := range 4 {
		for _, decode := range []func([]byte) []byte{fromHex, fromBase64} {
			if len(r)-from < minEncoded || !readable(decode(r[from:min(len(r), from+lookEncoded)]), true) {
				continue
			}
			if *room -= len(r) - from; *room < 0 {
				return detect.Find{}, false
			}
			if text := decode(r[from:]); readable(text, false) {
				if c, ok := p.personalIn(text, depth, room); ok {
					return detect.Find{Start: from, End: len(r), Class: c}, true
				}
			}
		}
	}
	return detect.Find{}, false
}

// personalIn returns the class of the first personal data in a decoded text.
func (p *pass) personalIn(t []byte, depth int, room *int) (class, bool) {
	t, _ = scrub.Decoded(t, false)
	finds := detect.In(t, p.classes)
	if depth > 1 {
		finds = append(finds, p.encodedIn(t, depth-1, room)...)
	}
	i := slices.IndexFunc(finds, func(f detect.Find) bool { return f.Class != detect.Secrets })
	if i < 0 {
		return "", false
	}
	return finds[i].Class, true
}

// base64Byte are the characters of both alphabets of base64, which hold those of hexadecimal.
var base64Byte = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_") {
		t[c] = true
	}
	return t
}()

func fromHex(r []byte) []byte {
	for i := range min(len(r), 2) {
		if !isAlnum(r[i]) {
			return nil
		}
	}
	out := make([]byte, len(r)/2)
	if _, err := hex.Decode(out, r[:len(r)&^1]); err != nil {
		return nil
	}
	return out
}

func fromBase64(r []byte) []byte {
	r = bytes.Map(func(c rune) rune {
		switch c {
		case '-':
			return '+'
		case '_':
			return '/'
		}
		return c
	}, r)
	if len(r)%4 == 1 {
		r = r[:len(r)-1]
	}
	out := make([]byte, len(r)) // of the bytes of an ending that is not canonical, the last bits are ignored
	n, err := base64.RawStdEncoding.Decode(out, r)
	if err != nil {
		return nil
	}
	return out[:n]
}

// readable reports whether decoded bytes are text without control characters. A cut text can end in half a character.
func readable(t []byte, cut bool) bool {
	if len(t) == 0 {
		return false
	}
	for i := 0; i < len(t); {
		c, n := utf8.DecodeRune(t[i:])
		switch {
		case c == utf8.RuneError && n <= 1:
			return cut && i > 0 && len(t)-i < utf8.UTFMax
		case c < 0x20 && c != '\n' && c != '\r' && c != '\t', c == 0x7f:
			return false
		}
		i += n
	}
	return true
}
