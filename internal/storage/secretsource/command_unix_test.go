//go:build unix

package secretsource

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/secret"
)

// TestCommand: the output of a program is the secret. Its standard error is not shown.
func TestCommand(t *testing.T) {
	s := Sources{Commands: true}
	run := func(spec secret.Spec) (fetched, error) { return s.fetch("name", spec) }
	got, err := run(secret.Spec{Command: []string{"printf", "%s\n", canary}})
	if err != nil || got.value.Reveal() != canary {
		t.Fatalf("control: %v", err)
	}
	mark := filepath.Join(t.TempDir(), "mark")
	rows := []struct {
		why  string
		argv []string
		says string
	}{
		{"no shell reads the arguments", []string{"printf", "", "$(touch " + mark + ")", "; touch " + mark},
			ErrEmpty.Error()},
		{"a program that fails", []string{"sh", "-c", "echo " + canary + " >&2; exit 3"}, "exit status 3"},
		{"a program that is not there", []string{"no-such-program-" + canary[:4]}, "could not be started"},
		{"a program that hangs", []string{"sleep", "60"}, "did not end within 300ms"},
		{"a child that lives on", []string{"sh", "-c", "sleep 100 & echo " + canary}, "holds its output"},
		{"a program that floods", []string{"sh", "-c", "yes " + canary}, ErrTooBig.Error()},
	}
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			began := time.Now()
			patience := time.Minute
			if r.why == "a program that hangs" {
				patience = 300 * time.Millisecond
			}
			_, err := run(secret.Spec{Command: r.argv, Timeout: patience})
			if err == nil || !strings.Contains(err.Error(), r.says) || strings.Contains(err.Error(), canary) {
				t.Errorf("got %v, want %q", err, r.says)
			}
			if d := time.Since(began); d > 50*time.Second {
				t.Errorf("it took %s", d)
			}
		})
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a shell has read the arguments")
	}
	if _, err := (Sources{}).fetch("name", secret.Spec{Command: []string{"printf", canary}}); !errors.Is(err, ErrClosed) {
		t.Errorf("the zero value runs commands: %v", err)
	}
}
