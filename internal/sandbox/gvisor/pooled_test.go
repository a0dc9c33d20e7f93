//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/guest"
	"waldo/internal/sandbox/pool"
	"waldo/internal/testing/sandboxtest"
)

// pooled is a pool in front of gVisor, and the profile and the command of a Python that waits.
func pooled(t testing.TB, d *Driver) (*pool.Driver, sandbox.Profile, func(code string) sandbox.Command) {
	t.Helper()
	argv, head, err := guest.Start{Lang: guest.Python, Warm: true}.Command()
	if err != nil {
		t.Fatal(err)
	}
	p := sandboxtest.Profile()
	p.Prestart = &sandbox.Prestart{Argv: append([]string{"/usr/bin/python3"}, argv...),
		Env: []string{"PATH=/usr/bin:/bin", "HOME=/tmp"}, Prelude: head}
	front := pool.New(d, pool.Options{Most: 2, Failed: func(err error) { t.Error(err) }})
	t.Cleanup(func() {
		if err := front.Close(); err != nil {
			t.Error(err)
		}
	})
	return front, p, func(code string) sandbox.Command {
		job, err := guest.Script{Lang: guest.Python, Code: []byte(code)}.Job()
		if err != nil {
			t.Fatal(err)
		}
		return sandbox.Command{Argv: p.Prestart.Argv, Env: p.Prestart.Env, Stdin: guest.Stdin(head, job, nil)}
	}
}

// take waits until a sandbox waits, and takes it.
func take(t testing.TB, front *pool.Driver, p sandbox.Profile) sandbox.Sandbox {
	t.Helper()
	front.Keep(p, 1)
	for end := time.Now().Add(time.Minute); front.Ready(p) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no sandbox gets ready")
		}
	}
	b, err := front.Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPooled: sandboxes of gVisor wait behind a pool, each for one job, and nothing passes from one to the
// next.
func TestPooled(t *testing.T) {
	front, p, job := pooled(t, driver(t))
	for range 2 {
		b := take(t, front, p)
		f, err := b.Run(context.Background(),
			job("import os; print(open('/proc/version').read().split()[0], os.listdir('/tmp')); open('/tmp/left', 'w')"))
		if err != nil || f.Stdout != "Linux []\n" || !f.Sandbox.Warm || f.Sandbox.Driver != "gvisor" {
			t.Errorf("%+v %v", f, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// BenchmarkWarm measures a job in a prewarmed sandbox of gVisor, from the request for the sandbox to the output
// and the facts. It also measures the bare interpreter in the same minute.
func BenchmarkWarm(b *testing.B) {
	b.Run("gVisor, python", func(b *testing.B) {
		d := New(Options{State: b.TempDir(), MilliCPU: 1000})
		if _, err := d.executable(context.Background()); err != nil {
			b.Skip(err)
		}
		front, p, job := pooled(b, d)
		var bare, warm []float64
		for range b.N {
			front.Keep(p, 2) // the next is made behind the run, and not at once
			for front.Ready(p) < 2 {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(1500 * time.Millisecond) // the sandbox before is gone, and the interpreter has imported what is usual
			began := time.Now()
			if out, err := exec.Command(p.Prestart.Argv[0], "-c", "print(1)").Output(); err != nil || string(out) != "1\n" {
				b.Fatal(err, string(out))
			}
			bare = append(bare, facts.MS(time.Since(began)))
			c := job("print(1)")
			began = time.Now()
			sb, err := front.Start(context.Background(), p)
			if err != nil {
				b.Fatal(err)
			}
			f, err := sb.Run(context.Background(), c)
			warm = append(warm, facts.MS(time.Since(began)))
			if err != nil || f.Stdout != "1\n" || !f.Sandbox.Warm {
				b.Fatal(err, f)
			}
			if err := sb.Close(); err != nil {
				b.Fatal(err)
			}
		}
		sandboxtest.Report(b, bare, warm)
	})
}
