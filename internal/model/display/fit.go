package display

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// goesOn begins each row of a line after its first. No line that waldo writes begins with it: they have "  | ".
const goesOn = "  |… "

// narrowest is the least width of a row: goesOn and one character with its accents.
const narrowest = 12

// Fit breaks the lines of an escaped text into rows that a terminal of width columns shows whole. A terminal would
// break a longer line itself, and its rest would begin at the left edge like a line of waldo's own. Rows after a line's
// first begin with a bar. A width below 12 counts as 12.
func Fit(text string, width int) string {
	most := max(width, narrowest) - 1 // some terminals go on to the next row after the last column
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, end := strings.CutSuffix(line, "\n")
		at := 0
		for line != "" {
			c, cells := character(line)
			if at+cells > most {
				b.WriteString("\n" + goesOn)
				at = utf8.RuneCountInString(goesOn) + 1 // the mark counts twice, as all but ASCII
			}
			b.WriteString(c)
			at, line = at+cells, line[len(c):]
		}
		if end {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// maxBlanks is more than the columns of a question need, and the indent of most code.
const maxBlanks = 24

// Blanks writes each run of more than 24 blanks as its length, since blanks can move text out of sight. Quote doubles
// the backslashes of a text, so no text in quotes looks the same.
func Blanks(line string) string {
	var b strings.Builder
	for line != "" {
		rest := strings.TrimLeft(line, " ")
		if n := len(line) - len(rest); n > maxBlanks {
			fmt.Fprintf(&b, `\{%d blanks}`, n)
		} else {
			b.WriteString(line[:n])
		}
		end := strings.IndexByte(rest, ' ')
		if end < 0 {
			end = len(rest)
		}
		b.WriteString(rest[:end])
		line = rest[end:]
	}
	return b.String()
}

// character returns the first character of s with its accents, and the most cells that a terminal gives it.
func character(s string) (c string, cells int) {
	for i, r := range s {
		if i > 0 && !unicode.Is(unicode.M, r) {
			return s[:i], cells
		}
		switch {
		case r == 0x2e3a || r == 0x2e3b: // the dashes of two and three letters
			cells += 4
		case r >= utf8.RuneSelf:
			cells += 2
		default:
			cells++
		}
	}
	return s, cells
}

// Barred returns a writer for words that are not waldo's own. Each line begins with the bar of a question's arguments, so
// none looks like a line of waldo's, also where a terminal of width columns would break it. The text is escaped before.
func Barred(w io.Writer, width int) io.Writer { return &barred{w: w, most: max(width, narrowest) - 1} }

type barred struct {
	w        io.Writer
	most, at int // columns; at is 0 before the first one of a line
}

const bar = "  | "

func (b *barred) Write(text []byte) (int, error) {
	var out strings.Builder
	for s := string(text); s != ""; {
		c, cells := character(s)
		s = s[len(c):]
		if c == "\t" {
			c, cells = "    ", 4
		}
		if b.at == 0 {
			out.WriteString(bar)
			b.at = len(bar)
		}
		switch {
		case strings.HasPrefix(c, "\n"):
			out.WriteByte('\n')
			b.at = 0
			continue
		case b.at+cells > b.most:
			out.WriteString("\n" + goesOn)
			b.at = utf8.RuneCountInString(goesOn) + 1
		}
		out.WriteString(c)
		b.at += cells
	}
	if _, err := io.WriteString(b.w, out.String()); err != nil {
		return 0, err
	}
	return len(text), nil
}
