// Package display makes text safe to show to a person. escape is the one rule. Sprintf and Fprintf apply it to
// every argument, as html/template does for a page, so that a caller cannot forget it.
package display

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text is ready for a terminal: waldo's own words, in which the words of others are escaped.
type Text string

// Line escapes s for one line of a terminal. Letters, digits and symbols stay as they are. Controls, line ends,
// characters without visible form, stacked accents and changes of direction become \n, \t, \x1b or \u{hex}.
func Line(s string) Text { return Text(escape(s, "", "")) }

// Lines escapes s but keeps its line ends and tabs. Each line after the first begins with a bar, so that it cannot
// pass for a line of waldo's own.
func Lines(s string) Text {
	return Text(strings.ReplaceAll(escape(strings.TrimRight(s, "\n"), "\n\t", ""), "\n", "\n  | "))
}

// Wrote quotes the end of a program's output: one line in quotes, several as lines for Lines.
func Wrote(text string) string {
	if !strings.Contains(text, "\n") {
		return "; it wrote " + Quote(text)
	}
	return "; it wrote:\n" + text
}

// Quote escapes s as Line does, and quotes it. Two texts that differ never look the same.
func Quote(s string) string { return `"` + escape(s, "", `"\`) + `"` }

// Sprintf formats as fmt.Sprintf does. Each argument that can hold text is escaped, except Text.
func Sprintf(format string, a ...any) Text {
	if false {
		_ = fmt.Sprintf(format, a...) // has go vet check the verbs of every caller
	}
	return Text(fmt.Sprintf(format, safe(a)...))
}

// Fprintf writes what Sprintf returns. A failed write is for the caller's own writer to tell, as with fmt.Fprintf.
func Fprintf(w io.Writer, format string, a ...any) {
	if false {
		_ = fmt.Sprintf(format, a...)
	}
	_, _ = io.WriteString(w, string(Sprintf(format, a...)))
}

// safe returns a with each argument that can hold text replaced by one that escapes itself.
func safe(a []any) []any {
	out := make([]any, len(a))
	for i, v := range a {
		switch v.(type) {
		case Text, bool, int, int64, uint64, float64: // a * of a format needs its int
			out[i] = v
		default:
			out[i] = escaping{v}
		}
	}
	return out
}

// escaping formats a value and escapes what comes out.
type escaping struct{ v any }

func (e escaping) Format(st fmt.State, verb rune) {
	_, _ = io.WriteString(st, escape(fmt.Sprintf(fmt.FormatString(st, verb), e.v), "", ""))
}

// escape writes every character of s that a terminal or an eye could misread by its number. Those of keep stay as
// they are, those of quoted get a backslash.
func escape(s, keep, quoted string) string {
	if plain(s) && !strings.ContainsAny(s, quoted) {
		return s
	}
	var b strings.Builder
	marks := 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case strings.ContainsRune(quoted, r):
			b.WriteByte('\\')
			b.WriteRune(r)
		case strings.ContainsRune(keep, r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.Is(unicode.M, r) && marks < 2 && i > 0 && Visible(r):
			marks++
			b.WriteRune(r)
			i += n
			continue
		case unicode.Is(unicode.M, r) || !Visible(r):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
		marks = 0
		if unicode.Is(unicode.M, r) {
			marks = 2 // an escaped accent does not let others follow
		}
		i += n
	}
	return b.String()
}

// plain reports whether s is printable ASCII.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// blank are letters, marks and symbols that show nothing.
var blank = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x034f, Hi: 0x034f, Stride: 1}, {Lo: 0x115f, Hi: 0x1160, Stride: 1}, {Lo: 0x17b4, Hi: 0x17b5, Stride: 1},
		{Lo: 0x180b, Hi: 0x180f, Stride: 1}, {Lo: 0x2800, Hi: 0x2800, Stride: 1}, {Lo: 0x3164, Hi: 0x3164, Stride: 1},
		{Lo: 0xfe00, Hi: 0xfe0f, Stride: 1}, {Lo: 0xffa0, Hi: 0xffa0, Stride: 1}, {Lo: 0xfffc, Hi: 0xfffd, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0x1d159, Hi: 0x1d159, Stride: 1}, {Lo: 0xe0000, Hi: 0xe0fff, Stride: 1}},
}

// rightToLeft are the blocks whose letters turn the direction of a line (UAX #9, classes R and AL).
var rightToLeft = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x0590, Hi: 0x08ff, Stride: 1}, {Lo: 0xfb1d, Hi: 0xfdff, Stride: 1}, {Lo: 0xfe70, Hi: 0xfeff, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0x10800, Hi: 0x10fff, Stride: 1}, {Lo: 0x1e800, Hi: 0x1efff, Stride: 1}},
}

// Visible reports whether a character shows as itself. unicode.IsPrint admits letters, marks, numbers, punctuation,
// symbols and the ASCII space, and so no control, format or line separator.
func Visible(r rune) bool {
	return unicode.IsPrint(r) && !unicode.In(r, blank, rightToLeft)
}
