package display

import (
	"fmt"
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
