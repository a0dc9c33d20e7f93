package display

import "testing"

func TestNearest(t *testing.T) {
	for _, row := range []struct{ typed, want, why string }{
		{"tansport", "transport", "a letter dropped"},
		{"netwrok", "network", "two letters changed places"},
		{"Mode", "mode", "letter case"},
		{"zzzzzz", "", "nothing near"},
		{"timeout", "timeout_seconds", "a beginning"},
	} {
		got := Nearest(row.typed, []string{"transport", "mode", "network", "timeout_seconds", "trust"})
		if got != row.want {
			t.Errorf("%s: %q: %q, want %q", row.why, row.typed, got, row.want)
		}
	}
}
