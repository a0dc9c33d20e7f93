package background

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain is the second waldo, too: its first argument names what it does.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != "second" {
		os.Exit(m.Run())
	}
	var env []string
	if err := json.NewDecoder(os.NewFile(EnvFD, "env")).Decode(&env); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	switch fmt.Println(env,
		slices.ContainsFunc(os.Args, func(a string) bool { return strings.Contains(a, "hunter2") })); os.Args[2] {
	case "ready":
		Ready()
	case "fails":
		fmt.Fprintln(os.Stderr, "no sandbox here")
		os.Exit(4)
	case "hangs":
		time.Sleep(time.Minute)
	}
}

// TestStart: the second waldo gets its variables, and none of them by its arguments, and its output goes to the files.
// One that ends without a sandbox is an error with its words, and one that hangs ends with the caller.
func TestStart(t *testing.T) {
	start := func(ctx context.Context, does string) (string, string, error) {
		dir := t.TempDir()
		out := filepath.Join(dir, "out")
		text, err := Start(ctx, []string{"second", does}, []string{"TOKEN=hunter2"}, out, filepath.Join(dir, "err"))
		var b []byte
		for range 1000 { // the second may still write
			if b, _ = os.ReadFile(out); len(b) > 0 || err != nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		return string(b), string(text), err
	}
	if out, _, err := start(t.Context(), "ready"); err != nil || out != "[TOKEN=hunter2] false\n" {
		t.Errorf("ready: %q, %v", out, err)
	}
	_, text, err := start(t.Context(), "fails")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 4 || text != "no sandbox here\n" {
		t.Errorf("fails: %q, %v", text, err)
	}
	if _, _, err := start(t.Context(), "ends"); err == nil || err.Error() != "it ended without a sandbox" {
		t.Errorf("ends: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := start(ctx, "hangs"); !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Errorf("hangs: %v", err)
	}
	there := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(there, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), []string{"second", "ready"}, nil, there, there+"2"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file that is there: %v", err)
	}
}
