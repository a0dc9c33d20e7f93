package terminal

import (
	"slices"
	"testing"
)

// TestBroken: the last column of a table is broken at spaces, and never within a word.
func TestBroken(t *testing.T) {
	for _, row := range []struct {
		text string
		n    int
		want []string
	}{
		{"one two three", 7, []string{"one two", "three"}}, {"one two", 7, []string{"one two"}}, {"", 7, []string{""}},
		{"é é é é", 3, []string{"é é", "é é"}}, {"abcdefgh ij", 3, []string{"abcdefgh", "ij"}}, {"abcdefgh", 3, []string{"abcdefgh"}},
	} {
		if got := broken(row.text, row.n); !slices.Equal(got, row.want) {
			t.Errorf("%q at %d: %q", row.text, row.n, got)
		}
	}
}
