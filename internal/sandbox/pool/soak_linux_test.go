//go:build linux && (amd64 || arm64)

package pool_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/sandbox/pool"
)

// TestSoak: very many runs leave descriptors, processes, mounts, cgroups, memory and disk where they
// were. WALDO_SOAK says how many; scripts/soak.sh runs 100,000.
func TestSoak(t *testing.T) {
	runs := 1000
	t.Setenv("TMPDIR", t.TempDir()) // used by this test only
	if s := os.Getenv("WALDO_SOAK"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("WALDO_SOAK=%q: want a number of runs", s)
		}
		runs = n
	}
	d := pool.New(namespace.New(namespace.Options{MilliCPU: 1000}),
		pool.Options{Most: 8, Failed: func(err error) { t.Errorf("behind the runs: %v", err) }})
	closed := false
	defer func() {
		if !closed {
			d.Close()
		}
	}()
	p := python(t)
	some := func(n int) (warm int64) {
		var left, was atomic.Int64
		left.Store(int64(n))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for i := left.Add(-1); i >= 0; i = left.Add(-1) {
					b, err := d.Start(context.Background(), p)
					if err != nil {
						t.Error(err)
						return
					}
					f, err := b.Run(context.Background(), job(t, p.Prestart,
						fmt.Sprintf("open('/workspace/output/x', 'w').write('x' * 1000)\nprint(%d)", i)))
					if err != nil || f.Stdout != fmt.Sprintf("%d\n", i) {
						t.Errorf("run %d: %v %+v", i, err, f)
						left.Store(0)
					}
					if f.Sandbox.Warm {
						was.Add(1)
					}
					if err := b.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		return was.Load()
	}
	some(200) // makes everything that is made once
	before := settled(t, d, p)
	began := time.Now()
	warm := some(runs)
	took := time.Since(began)
	after := settled(t, d, p)
	t.Logf("%d runs in %v, %.0f a second, %d in forked sandboxes; before %v, after %v", runs, took.Round(time.Second),
		float64(runs)/took.Seconds(), warm, before, after)
	for i, name := range left.names() {
		if most := before[i] + left[i].slack; after[i] > most {
			t.Errorf("%s: %d before, %d after", name, before[i], after[i])
		}
	}
	closed = true
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if n := len(interpreters(t)); n != 0 {
		t.Errorf("%d zygotes are left", n)
	}
}

// things are what runs could leave, and by how much each may differ from one moment to another.
type things []struct {
	name  string
	slack int
	count func(t *testing.T) int
}

var left = things{
	{"descriptors", 8, func(t *testing.T) int { return entries(t, "/proc/self/fd") }},
	{"threads", 12, func(t *testing.T) int { return entries(t, "/proc/self/task") }},
	{"children", 1, func(t *testing.T) int { return len(children(t, func(bool, string) bool { return true })) }},
	{"mounts", 0, func(t *testing.T) int {
		b, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Count(b, []byte("\n"))
	}},
	{"cgroups", 6, func(t *testing.T) int {
		n := 0
		host, err := cgroup.Detect()
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{"", "*/", "*/*/"} {
			found, _ := filepath.Glob("/sys/fs/cgroup/" + at + host.Prefix() + "*")
			n += len(found)
		}
		return n
	}},
	{"kB of memory of its own", 16 << 10, func(t *testing.T) int {
		runtime.GC()
		b, err := os.ReadFile("/proc/self/smaps_rollup")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), "Private_Dirty:")
		n, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}},
	{"files in the folder for such", 0, func(t *testing.T) int { return entries(t, os.TempDir()) }},
}

func (l things) names() (out []string) {
	for _, one := range l {
		out = append(out, one.name)
	}
	return out
}

func entries(t *testing.T, dir string) int {
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// settled counts when everything that was being ended is gone.
func settled(t *testing.T, d *pool.Driver, p sandbox.Profile) (out []int) {
	filled(t, d, p, 8)
	for last := -1; ; time.Sleep(200 * time.Millisecond) {
		n := left[0].count(t)
		if n == last {
			break
		}
		last = n
	}
	for _, one := range left {
		out = append(out, one.count(t))
	}
	return out
}
