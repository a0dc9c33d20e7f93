package bounds

import (
	"strings"
	"testing"
)

// The tail shows its last bytes, and has those before them to find a secret by.
func TestTailShowsItsLastBytes(t *testing.T) {
	var start, end int
	var before bool
	window := func(s string, from, to int, b, _ bool) string {
		start, end, before = from, to, b
		return s[max(0, from):to]
	}
	for _, row := range []struct {
		bytes, start int
		cut          bool
	}{
		{10, 10 - shown, false}, {shown + 100, 100, false}, {maxTail, maxTail - shown, false},
		{maxTail + 1, maxTail - shown, true},
	} {
		tail := &Tail{}
		for _, c := range strings.Repeat("a", row.bytes) {
			_, _ = tail.Write([]byte(string(c)))
		}
		text := tail.Text(window)
		if len(text) != min(row.bytes, shown) || start != row.start || end != min(row.bytes, maxTail) || before != row.cut {
			t.Errorf("%d bytes: %d shown, of %d to %d, cut %t", row.bytes, len(text), start, end, before)
		}
	}
}
