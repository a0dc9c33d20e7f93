package main

import (
	"io"
	"strings"
	"unicode/utf8"

	"waldo/internal/model/display"
)

// table prints rows below a header, each column as wide as its widest cell, and escapes every cell. It prints nothing
// without rows.
func table(w io.Writer, header []string, rows [][]string) {
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

// brief cuts a text to its first line and n letters.
func brief(text string, n int) string {
	line, _, more := strings.Cut(text, "\n")
	if r := []rune(line); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	if more {
		line += " …"
	}
	return line
}
