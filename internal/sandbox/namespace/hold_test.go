//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"testing"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/sandboxtest"
)

// TestHold: only the command's own process, by its first thread, is held.
func TestHold(t *testing.T) {
	p := sandboxtest.Profile()
	p.Ahead = &sandbox.Ahead{Argv: []string{"cat"}, Env: []string{"PATH=/usr/bin:/bin"}, Head: "x"}
	one, err := New(Options{}).Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	b := one.(*box)
	if err := b.Warm(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !b.host.Pids() {
		t.Log("nothing counts processes here: nothing is ever held")
		return
	}
	r := &run{box: b, leader: b.waiting.leader}
	if r.leader == 0 {
		t.Fatal("the command's process is not known")
	}
	if r.ends(r.leader+1, 0) {
		t.Error("another process was held")
	}
	if !r.ends(r.leader, 3) {
		t.Error("control: the command was not held")
	}
	if e := r.held.Load(); e == nil || e.status.ExitStatus() != 3 || !e.reported {
		t.Errorf("held with %+v", e)
	}
}
