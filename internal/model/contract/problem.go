package contract

import (
	"fmt"
	"regexp"
	"sort"
	"strings"
	"unicode/utf8"

	"waldo/internal/model/display"
)

// Problems is everything wrong with one configuration, in the order of the file.
type Problems []Problem

// Error returns one line for each problem: "file:line:column: code: text".
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Has reports whether one of the problems has the code.
func (ps Problems) Has(code string) bool {
	for _, p := range ps {
		if p.Code == code {
			return true
		}
	}
	return false
}

// Sort puts the problems in the order of the file.
func (ps Problems) Sort() {
	sort.SliceStable(ps, func(i, j int) bool {
		a, b := ps[i].At, ps[j].At
		return a.Line < b.Line || a.Line == b.Line && a.Column < b.Column
	})
}

// String returns "file:line:column: code: text".
func (p Problem) String() string { return fmt.Sprintf("%s: %s: %s", p.At, p.Code, p.Text) }

// String returns "file:line:column", leaving out what is not known.
func (at Position) String() string {
	switch {
	case at.Line == 0:
		return at.File
	case at.Column == 0:
		return fmt.Sprintf("%s:%d", at.File, at.Line)
	}
	return fmt.Sprintf("%s:%d:%d", at.File, at.Line, at.Column)
}

// Render returns the problem with the line of source that it is about, a caret under its place,
// and the hint. A line that may hold a secret is cut off before it.
func (p Problem) Render(source string) string {
	var b strings.Builder
	display.Fprintf(&b, "%s\n", p)
	if line, ok := lineOf(source, p.At.Line); ok {
		shown := visible(line)
		if p.upTo > 0 { // the value must not be shown
			shown = firstRunes(shown, p.upTo-1) + "…"
		}
		shown = regexp.MustCompile(`[A-Za-z0-9_+/=-]{8,}`).ReplaceAllStringFunc(shown, masked)
		fmt.Fprintf(&b, "%5d | %s\n", p.At.Line, cut(shown, 200))
		if c := p.At.Column; c > 0 && c <= 200 {
			fmt.Fprintf(&b, "      | %s^\n", strings.Repeat(" ", c-1))
		}
	}
	if p.Hint != "" {
		display.Fprintf(&b, "hint: %s\n", p.Hint)
	}
	return b.String()
}

// masked hides a word that may be a secret pasted where none belongs.
func masked(s string) string {
	if looksSecret(s) {
		return strings.Repeat("·", len(s))
	}
	return s
}

// cover keeps the lines on which a secret stands from being shown past it, by any problem.
func (ps Problems) cover() {
	first := map[int]int{}
	for _, p := range ps {
		if c, ok := first[p.At.Line]; p.Code == codeLiteral && (!ok || p.At.Column < c) {
			first[p.At.Line] = p.At.Column
		}
	}
	for i := range ps {
		ps[i].upTo = first[ps[i].At.Line]
	}
}

func lineOf(source string, n int) (string, bool) {
	lines := strings.Split(source, "\n")
	if n < 1 || n > len(lines) {
		return "", false
	}
	return strings.TrimSuffix(lines[n-1], "\r"), true
}

// visible makes every character one column wide: an unprintable one becomes '·', a tab a space.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r == utf8.RuneError || !display.Visible(r):
			return '·'
		}
		return r
	}, s)
}

// hidden reports characters that show nothing or turn the text round: C1 controls, zero-width
// characters, bidirectional controls, tags and the byte order mark.
func hidden(r rune) bool {
	switch {
	case r >= 0x80 && r <= 0x9f, r == 0xad, r == 0x61c, r >= 0x200b && r <= 0x200f,
		r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0xfeff, r >= 0xe0000 && r <= 0xe0fff:
		return true
	}
	return false
}

func firstRunes(s string, n int) string {
	for i := range s {
		if n <= 0 {
			return s[:i]
		}
		n--
	}
	return s
}

func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return firstRunes(s, n) + "…"
}

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

// meant makes the hint "did you mean …?", or none.
func meant(s string, words []string) string {
	if w := closest(s, words); w != "" {
		return fmt.Sprintf("did you mean %q?", w)
	}
	return ""
}
