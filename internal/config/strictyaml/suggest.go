package strictyaml

import (
	"fmt"
	"strings"
)

// closest returns the word nearest to s, at most a third of its letters away, else one that begins
// with s, or "".
func closest(s string, words []string) string {
	if len(s) > 64 {
		return ""
	}
	best, near := "", 1+len(s)/3
	for _, w := range words {
		if d := distance(strings.ToLower(s), strings.ToLower(w)); d < near || d == near && best == "" {
			best, near = w, d
		}
	}
	for _, w := range words {
		if best == "" && len(s) >= 3 && strings.HasPrefix(w, s) {
			best = w
		}
	}
	return best
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

// Meant makes the hint "did you mean …?", or none.
func Meant(s string, words []string) string {
	if w := closest(s, words); w != "" {
		return fmt.Sprintf("did you mean %q?", w)
	}
	return ""
}
