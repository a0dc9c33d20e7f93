package terminal

import (
	"fmt"
	"io"
	"math"
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
	before := 0 // the columns before the last
	for _, n := range width[:len(width)-1] {
		before += n + 2
	}
	room := math.MaxInt
	if OnScreen(w) {
		columns, _ := size(w)
		if room = columns - before; room < leastRoom {
			room = math.MaxInt
		}
	}
	for _, row := range all {
		var b strings.Builder
		for i, cell := range row {
			if i == len(header)-1 {
				cell = strings.Join(broken(cell, room), "\n"+strings.Repeat(" ", before))
			}
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		display.Fprintf(w, "%s\n", display.Text(strings.TrimRight(b.String(), " ")))
	}
}

// leastRoom is how many letters the last column has at a terminal before it is broken into lines.
const leastRoom = 16

// broken breaks a text at spaces into lines of at most n letters. A longer word stays whole.
func broken(s string, n int) (out []string) {
	for utf8.RuneCountInString(s) > n {
		r := []rune(s)
		at := strings.LastIndex(string(r[:n+1]), " ")
		if at < 1 {
			if at = strings.Index(s, " "); at < 1 {
				break
			}
		}
		out, s = append(out, s[:at]), strings.TrimLeft(s[at:], " ")
	}
	return append(out, s)
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
