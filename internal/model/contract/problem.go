package contract

import (
	"fmt"
	"regexp"
	"sort"
	"strings"
	"unicode/utf8"

	"waldo/internal/model/display"
)

// CodeLiteral marks a problem whose line may show a secret.
const CodeLiteral = "secret.literal"

// Problem is one thing wrong with a configuration, shown with its place.
type Problem struct {
	At   Position `json:"at"`
	Code string   `json:"code"` // key.unknown
	Text string   `json:"text"` // the problem
	Hint string   `json:"hint,omitempty"`
	upTo int      // the first column of its line that may hold a secret; 0: none
}

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
		fmt.Fprintf(&b, "%5d | %s\n", p.At.Line, Cut(shown, 200))
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
	if LooksSecret(s) {
		return strings.Repeat("·", len(s))
	}
	return s
}

// Cover keeps the lines on which a secret stands from being shown past it, by any problem.
func (ps Problems) Cover() {
	first := map[int]int{}
	for _, p := range ps {
		if c, ok := first[p.At.Line]; p.Code == CodeLiteral && (!ok || p.At.Column < c) {
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

func firstRunes(s string, n int) string {
	for i := range s {
		if n <= 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// Cut shortens s to n characters and an ellipsis.
func Cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return firstRunes(s, n) + "…"
}
