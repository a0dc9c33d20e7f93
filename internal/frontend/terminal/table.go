package terminal

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"waldo/internal/model/display"
)

// Table prints rows below a header, each column as wide as its widest cell, and escapes every cell. It prints nothing
// without rows.
func Table(w io.Writer, header []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	all := append([][]string{header}, rows...)
	width := make([]int, len(header))
	for _, row := range all {
		for i := range row {
			row[i] = string(display.Line(row[i]))
			width[i] = max(width[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, row := range all {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		display.Fprintf(w, "%s\n", display.Text(strings.TrimRight(b.String(), " ")))
	}
}

// List is Table for a command that lists things: without rows it says on notes that there are none of them.
func List(w, notes io.Writer, things string, header []string, rows [][]string) {
	if len(rows) == 0 {
		display.Fprintf(notes, "no %s\n", things)
	}
	Table(w, header, rows)
}

// Brief cuts a text to its first line and n letters.
func Brief(text string, n int) string {
	line, _, more := strings.Cut(text, "\n")
	if r := []rune(line); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	if more {
		line += " …"
	}
	return line
}

// Ago says a time of the log: relative at a terminal, whole elsewhere.
func Ago(w io.Writer, at string, now time.Time) string {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil || !OnScreen(w) {
		return at
	}
	switch d := now.Sub(t); {
	case d < 0:
		return at
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh %dm ago", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd ago", int(d.Hours()/24))
	}
}
