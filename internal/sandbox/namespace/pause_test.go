//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/testing/sandboxtest"
)

// TestPause counts what a loop writes: while the sandbox is paused, nothing comes.
func TestPause(t *testing.T) {
	sb, err := New(Options{}).Start(context.Background(), sandboxtest.Profile())
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	p := sb.Abilities()
	out, w := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan facts.Facts, 1)
	go func() {
		f, _ := sb.Run(ctx, sandbox.Command{Argv: []string{"/bin/sh", "-c", "while :; do echo x; sleep 0.01; done"},
			Env: []string{"PATH=/usr/bin:/bin"}, Stdout: w})
		w.Close()
		ended <- f
	}()
	ticks := make(chan struct{}, 100000)
	go func() {
		b := make([]byte, 2)
		for {
			if _, err := io.ReadFull(out, b); err != nil {
				return
			}
			ticks <- struct{}{}
		}
	}()
	runs := func() bool { // within so long that a busy machine gives it its turn
		for len(ticks) > 0 {
			<-ticks
		}
		select {
		case <-ticks:
			return true
		case <-time.After(30 * time.Second):
			return false
		}
	}
	silent := func() bool { // for half a second, once what was written before is read
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
			for len(ticks) > 0 {
				<-ticks
			}
			if time.Sleep(500 * time.Millisecond); len(ticks) == 0 {
				return true
			}
		}
		return false
	}
	if !runs() {
		t.Fatal("control: nothing came before the pause")
	}
	if err := p.Pause(); err != nil && strings.Contains(err.Error(), "no version 2 hierarchy") && os.Geteuid() != 0 {
		cancel()
		<-ended
		t.Skipf("an ordinary user has no cgroup here that could stop a sandbox, and is told so: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	if !silent() {
		t.Error("it goes on while the sandbox is paused")
	}
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	if !runs() {
		t.Error("nothing came after the pause")
	}
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	cancel() // a paused sandbox can be ended
	select {
	case f := <-ended:
		if f.Status != facts.Cancelled {
			t.Errorf("ended as %s", f.Status)
		}
	case <-time.After(time.Minute):
		t.Fatal("a paused sandbox did not end")
	}
}
