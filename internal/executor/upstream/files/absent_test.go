package files

import (
	"errors"
	"fmt"
	"testing"

	"waldo/internal/pkginstall"
)

// Only a missing file or package gets the text, and it holds no path.
func TestNotInstalled(t *testing.T) {
	for _, row := range []struct {
		why  string
		err  error
		want string
	}{
		{"a package that no operator accepted", fmt.Errorf("server s: the package p@1 %w: hint", pkginstall.ErrNotAccepted),
			": its package was never accepted, so it is not installed. An operator runs: waldo lock --accept s"},
		{"a program that is not there", fmt.Errorf("server s: %w", Fault{Text: "no such program: /home/ann/x", Missing: true}),
			" cannot start: a file that it needs is missing. An operator sees which with: waldo tools s"},
		{"control: a folder that is refused", fmt.Errorf("server s: %w", Fault{Text: "too wide", Refused: true}), ""},
		{"control: another error", errors.New("it ended"), ""},
		{"control: none", nil, ""},
	} {
		if got := NotInstalled("s", row.err); got != row.want {
			t.Errorf("%s: %q, want %q", row.why, got, row.want)
		}
	}
}
