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

// Excerpt cuts a text of more than n characters that nobody has looked at for secrets yet: before the word that the cut
// would divide, and before words with digits there. A part of a secret or of a number is not known for one later.
func Excerpt(s string, n int) string {
	if len(s) <= n || utf8.RuneCountInString(s) <= n {
		return s
	}
	s = string([]rune(s)[:n-1])
	for {
		s = s[:strings.LastIndexByte(s, ' ')+1]
		word := strings.TrimRight(s, " ")
		if !strings.ContainsAny(word[strings.LastIndexByte(word, ' ')+1:], "0123456789") {
			return s + "…"
		}
		s = word
	}
}

// Megabytes writes a size for a person.
func Megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
