//go:build linux && (amd64 || arm64)

package pool_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/guest"
	"waldo/internal/sandbox"
)

// measure runs f n times with a pause between, and reports the median and the 99th percentile.
func measure(b *testing.B, name string, pause func(), f func() error) time.Duration {
	var took []time.Duration
	for range b.N {
		pause()
		began := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(took[len(took)/2]), name+"-p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), name+"-p99-ms")
	return took[len(took)/2]
}

func bare(exe string, args ...string) func() error {
	return func() error {
		c := exec.Command(exe, args...)
		c.Env = env
		_, err := c.CombinedOutput()
		return err
	}
}

const imports = "import json, re, decimal, urllib.request, csv, dataclasses, datetime, hashlib, tempfile; print(1)"

// BenchmarkWarm compares a run in a box that is ready, output and facts in hand, with the bare
// interpreter in the same minute. Absolute times mean little on a busy machine; the ratio holds.
func BenchmarkWarm(b *testing.B) {
	for _, r := range []struct {
		name string
		lang guest.Lang
		exe  string
		flag string
		code string
		idle time.Duration // between two runs
	}{
		{"python", guest.Python, "/usr/bin/python3", "-c", "print(1)", 10 * time.Millisecond},
		{"python with nine imports", guest.Python, "/usr/bin/python3", "-c", imports, 100 * time.Millisecond},
		{"node", guest.JavaScript, "/usr/bin/node", "-e", "console.log(1)", 10 * time.Millisecond},
	} {
		b.Run(r.name, func(b *testing.B) {
			if _, err := os.Stat(r.exe); err != nil {
				b.Skipf("%s is not here", r.exe)
			}
			p := python(b)
			p.Ahead = ahead(b, r.lang, r.exe)
			d := newPool(b, 4)
			one := func() error {
				box, err := d.Start(context.Background(), p)
				if err != nil {
					return err
				}
				stdin, err := guest.Script{Lang: r.lang, Code: []byte(r.code)}.Job()
				if err != nil {
					return err
				}
				f, err := box.Run(context.Background(), sandbox.Command{Argv: p.Ahead.Argv, Env: env, Stdin: io.MultiReader(strings.NewReader(p.Ahead.Head), stdin)})
				if err == nil && (!f.Sandbox.Warm || f.Stdout != "1\n" || *f.ExitCode != 0) {
					b.Fatalf("not a warm run: %+v", f)
				}
				if err == nil {
					err = box.Close()
				}
				return err
			}
			filled(b, d, p, 4)
			plain := measure(b, "bare", func() {}, bare(r.exe, r.flag, r.code))
			warm := measure(b, "warm", func() { filled(b, d, p, 4); time.Sleep(r.idle) }, one)
			b.ReportMetric(float64(plain)/float64(warm), "x-faster")
			b.ReportMetric(0, "ns/op")
		})
	}
}
