//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/testing/sandboxtest"
)

var env = []string{"PATH=/usr/bin:/bin", "HOME=/tmp"}

// waiter is an interpreter that reads a line, and later its job.
func waiter() *sandbox.Prestart {
	return &sandbox.Prestart{Argv: []string{"python3", "-I", "-S", "-c",
		"import sys\nsys.stdin.readline()\nexec(sys.stdin.read())"}, Env: env, Prelude: "head\n"}
}

// ready returns a sandbox whose interpreter waits, and the command that it waits for.
func ready(t testing.TB, d *Driver, code string) (sandbox.Warmer, sandbox.Command) {
	t.Helper()
	p := sandboxtest.Profile()
	p.Prestart = waiter()
	b, err := d.Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	w := b.(sandbox.Warmer)
	t.Cleanup(func() { _ = w.Close() })
	if err := w.Warm(context.Background()); err != nil {
		t.Fatal(err)
	}
	return w, sandbox.Command{Argv: p.Prestart.Argv, Env: env,
		Stdin: io.MultiReader(strings.NewReader(p.Prestart.Prelude), strings.NewReader(code))}
}

func TestWarm(t *testing.T) {
	d := driver(t)
	job := sandboxtest.Profile()
	job.ID = "s_job"
	t.Run("the command that waits does the job", func(t *testing.T) {
		b, c := ready(t, d, "print('done', flush=True)")
		if err := b.Assign(job); err != nil {
			t.Fatal(err)
		}
		f, err := b.Run(context.Background(), c)
		if err != nil || f.Stdout != "done\n" || !f.Sandbox.Warm || f.Sandbox.ID != "s_job" || *f.ExitCode != 0 {
			t.Errorf("%v %+v", err, f)
		}
		if f.Usage.CPUMS > 500 {
			t.Errorf("%v ms of processor time: what came before the job was counted", f.Usage.CPUMS)
		}
	})
	t.Run("the job's wall clock starts with the job", func(t *testing.T) {
		job := job
		job.Limits.Wall = time.Second
		b, c := ready(t, d, "import time; time.sleep(60)")
		time.Sleep(job.Limits.Wall)
		if err := b.Assign(job); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		f, err := b.Run(context.Background(), c)
		took := time.Since(began)
		if err != nil || f.Status != facts.Timeout || took < job.Limits.Wall || took > job.Limits.Wall+40*time.Second {
			t.Errorf("%v %s after %v", err, f.Status, took)
		}
	})
	t.Run("another command ends the one that waits", func(t *testing.T) {
		b, _ := ready(t, d, "")
		f, err := b.Run(context.Background(), sandbox.Command{Argv: []string{"echo", "other"}, Env: env})
		if err != nil || f.Stdout != "other\n" || f.Sandbox.Warm {
			t.Errorf("%v %+v", err, f)
		}
	})
	t.Run("a sandbox whose command has died is not adopted", func(t *testing.T) {
		p := sandboxtest.Profile()
		p.Prestart = &sandbox.Prestart{Argv: []string{"sh", "-c", "read x"}, Env: env, Prelude: "x\n"}
		adopted := true
		for wait := 300 * time.Millisecond; adopted && wait < 20*time.Second; wait *= 4 { // a busy machine takes longer
			b, err := d.Start(context.Background(), p)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			if err := b.(sandbox.Warmer).Warm(context.Background()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(wait)
			adopted = b.(sandbox.Warmer).Assign(job) == nil
		}
		if adopted {
			t.Error("adopted")
		}
	})
	t.Run("paused, it stands still", func(t *testing.T) {
		b, c := ready(t, d, "print('went on', flush=True)")
		if err := b.Assign(job); err != nil {
			t.Fatal(err)
		}
		p := b.Abilities()
		if err := p.Pause(); err != nil {
			t.Skipf("no freezer here: %v", err)
		}
		began := time.Now()
		time.AfterFunc(300*time.Millisecond, func() { _ = p.Resume() })
		f, err := b.Run(context.Background(), c)
		if err != nil || f.Stdout != "went on\n" || time.Since(began) < 300*time.Millisecond {
			t.Errorf("%v %q after %v", err, f.Stdout, time.Since(began))
		}
	})
}

// TestAdoptOnce: a sandbox is made ahead without a command too; one in which something ran is given to no other
// job.
func TestAdoptOnce(t *testing.T) {
	job := sandboxtest.Profile()
	job.ID = "s_job"
	one, err := driver(t).Start(context.Background(), sandboxtest.Profile())
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	b := one.(sandbox.Warmer)
	if err := b.Assign(job); err != nil {
		t.Fatalf("control: %v", err)
	}
	f, err := b.Run(context.Background(), sandbox.Command{Argv: []string{"echo", "1"}, Env: env})
	if err != nil || f.Stdout != "1\n" || f.Sandbox.ID != "s_job" || f.Sandbox.Warm {
		t.Errorf("%v %+v", err, f)
	}
	if err := b.Assign(job); err == nil {
		t.Error("a sandbox in which something ran was given to another job")
	}
}
