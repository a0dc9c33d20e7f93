package display

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Count writes a number and a noun, in the plural but for one.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if stem, ok := strings.CutSuffix(what, "ry"); ok { // a try, an entry
		return fmt.Sprintf("%d %sries", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Clip cuts a text of more than n bytes before the character that the cut would divide, and marks the cut.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// Megabytes writes a size for a person.
func Megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
