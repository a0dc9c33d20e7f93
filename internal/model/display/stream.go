package display

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// Writer escapes all that is written through it, except line ends and tabs. Close writes what was held back: at
// most the first three bytes of a character.
func Writer(w io.Writer) io.WriteCloser { return &writer{w: w} }

type writer struct {
	w    io.Writer
	held []byte
}

func (w *writer) Write(b []byte) (int, error) {
	s := append(w.held, b...)
	end := len(s)
	for back := 1; back < utf8.UTFMax && back <= len(s); back++ {
		if at := len(s) - back; utf8.RuneStart(s[at]) {
			if !utf8.FullRune(s[at:]) {
				end = at
			}
			break
		}
	}
	w.held = bytes.Clone(s[end:])
	if _, err := io.WriteString(w.w, escape(string(s[:end]), "\n\t", "")); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (w *writer) Close() error {
	_, err := io.WriteString(w.w, escape(string(w.held), "", ""))
	w.held = nil
	return err
}

// JSON returns the same JSON with every character that is not visible written as \uXXXX: DEL, the C1 controls, and
// changes of direction, which JSON lets stand.
func JSON(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		switch {
		case r < 0x7f || r != utf8.RuneError && Visible(r):
			out = append(out, b[i:i+n]...)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		i += n
	}
	return out
}
