//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestStraight: a short job whose input is in memory runs in the caller's thread. Its facts are the same with
// and without that.
func TestStraight(t *testing.T) {
	front, p, job := pooled(t, driver(t))
	p.Limits.Output = 1000
	for _, row := range []struct {
		why, code, stdout string
		exit              int // -1: none
		limit             string
	}{
		{"short", "print(1)", "1\n", 0, ""},
		{"short, with a status", "import sys; print(2); sys.exit(3)", "2\n", 3, ""},
		{"longer than until the first look", "import time; print(1, flush=True); time.sleep(.1); print(2)", "1\n2\n", 0, ""},
		{"a flood", "while True: print('x' * 4095)", strings.Repeat("x", 1000), -1, "output"},
		{"without end", "while True: pass", "", -1, "wall"},
	} {
		t.Run(row.why, func(t *testing.T) {
			p := p
			if row.limit == "wall" {
				p.Limits.Wall = time.Second
			}
			b := take(t, front, p)
			defer b.Close()
			began := time.Now()
			f, err := b.Run(context.Background(), job(row.code))
			if err != nil || f.Stdout != row.stdout || !f.Sandbox.Warm {
				t.Fatalf("%v %+v", err, f)
			}
			if got := f.ExitCode; row.exit < 0 != (got == nil) || got != nil && *got != row.exit {
				t.Errorf("exit code %v, not %d", got, row.exit)
			}
			if got := f.Limit; (row.limit == "") != (got == nil) || got != nil && string(*got) != row.limit {
				t.Errorf("limit %v, not %q", got, row.limit)
			}
			if took := time.Since(began); row.limit == "wall" && (took < p.Limits.Wall || f.Usage.WallMS < 1000) {
				t.Errorf("it was ended after %v, %v ms", took, f.Usage.WallMS)
			}
		})
	}
}
