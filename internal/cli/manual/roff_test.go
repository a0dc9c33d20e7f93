package manual

import "testing"

// A line of text that begins like an order of the formatter is text.
func TestRoffIsText(t *testing.T) {
	for in, want := range map[string]string{
		".so /etc/passwd": "\\&.so /etc/passwd", "'x": "\\(aqx", "a\\b-c": "a\\eb\\-c",
	} {
		if got := roff(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
