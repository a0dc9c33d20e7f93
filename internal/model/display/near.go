package display

import (
	"fmt"
	"slices"
	"strings"
)

// Nearest returns the name most similar to a word, without regard to case; empty: none is near. A name that begins
// with the word is near, and so is one of four letters or more that the word begins with. A word of up to three letters must share the first one, since half of all such words differ
// by two changes.
func Nearest(word string, names []string) string {
	word = strings.ToLower(word)
	best, least := "", 1+len(word)/3
	for _, name := range slices.Sorted(slices.Values(names)) {
		lower := strings.ToLower(name)
		if name == "" || word == "" || len(word) > 64 || len(word) <= 3 && lower[0] != word[0] {
			continue
		}
		d := distance(word, lower)
		if strings.HasPrefix(lower, word) && len(word) > 1 {
			d = min(d, 1)
		}
		if strings.HasPrefix(word, lower) && len(lower) > 3 { // --language for --lang
			d = min(d, least)
		}
		if d <= least && (best == "" || d < least) {
			best, least = name, d
		}
	}
	return best
}

// Meant returns the hint "did you mean …?"; empty: no name is near.
func Meant(word string, names []string) string {
	if n := Nearest(word, names); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	return ""
}

// distance counts the letters to add, drop, change or swap with a neighbour to get from a to b.
func distance(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
