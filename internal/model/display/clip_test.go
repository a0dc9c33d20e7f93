package display

import "testing"

// TestClip: a cut divides no character, and shows. A text that fits stays as it is.
func TestClip(t *testing.T) {
	for _, row := range []struct {
		text string
		most int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "abc…"}, {"aéé", 4, "aé…"}, {"é", 1, "…"}, {"", 0, ""}, {"\x80\x80", 1, "…"},
	} {
		if got := Clip(row.text, row.most); got != row.want {
			t.Errorf("%q to %d: %q, want %q", row.text, row.most, got, row.want)
		}
	}
}
