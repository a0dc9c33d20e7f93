package runner

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestUntorn: a piece of text ends with a whole character, and no whole character is lost.
func TestUntorn(t *testing.T) {
	text := strings.Repeat("aé€😀", 3)
	for n := 1; n <= len(text); n++ {
		piece := untorn([]byte(text[:n]))
		if !utf8.Valid(piece) || n-len(piece) >= utf8.UTFMax {
			t.Errorf("%d bytes: %q", n, piece)
		}
		if utf8.ValidString(text[:n]) && len(piece) != n {
			t.Errorf("%d bytes, whole: %q", n, piece)
		}
	}
	if got := untorn([]byte{0xff, 0xfe, 0xfd}); len(got) != 3 {
		t.Errorf("bytes that are no text lost some: %x", got)
	}
}
