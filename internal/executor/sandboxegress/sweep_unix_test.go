//go:build unix

package sandboxegress

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestSweep: the CA bundle of a waldo that was killed is removed; one of a sandbox that runs stays, however old.
func TestSweep(t *testing.T) {
	state := t.TempDir()
	var e Egress
	if err := (&Assembler{State: state}).trust(&e, []byte("ours")); err != nil {
		t.Fatal(err)
	}
	inUse := e.Mounts[0].Source
	killed, begun := filepath.Join(state, "run", "trust-1.pem"), filepath.Join(state, "run", "trust-2.pem")
	old := time.Now().Add(-48 * time.Hour)
	for _, name := range []string{killed, begun} {
		if err := os.WriteFile(name, []byte("left"), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{killed, inUse} {
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sweep(state, time.Now()); err != nil {
		t.Fatal(err)
	}
	for name, stays := range map[string]bool{inUse: true, begun: true, killed: false} {
		if _, err := os.Stat(name); (err == nil) != stays {
			t.Errorf("%s: %v", filepath.Base(name), err)
		}
	}
	if err := e.remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(inUse); err == nil {
		t.Error("closed, and still there")
	}
}
