//go:build linux && (amd64 || arm64)

package pool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/guest"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/sandbox/pool"
	"waldo/internal/testing/sandboxtest"
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

// scripts are what runs in an interpreter that is ready, and in a bare one.
var scripts = []struct {
	name string
	lang guest.Lang
	exe  string
	flag string
	code string
}{
	{"python", guest.Python, "/usr/bin/python3", "-c", "print(1)"},
	{"python with nine imports", guest.Python, "/usr/bin/python3", "-c", imports},
	{"node", guest.JavaScript, "/usr/bin/node", "-e", "console.log(1)"},
}

// BenchmarkWarm compares a run in a sandbox that is ready, output and facts in hand, with the bare interpreter
// in the same minute. Absolute times mean little on a busy machine; the ratio holds.
func BenchmarkWarm(b *testing.B) {
	for _, r := range scripts {
		b.Run(r.name, func(b *testing.B) {
			if _, err := os.Stat(r.exe); err != nil {
				b.Skipf("%s is not here", r.exe)
			}
			p := python(b)
			p.Prestart = ahead(b, r.lang, r.exe)
			d := newServed(b, 4, 2)
			one := func() error {
				sb, err := d.Start(context.Background(), p)
				if err != nil {
					return err
				}
				stdin, err := guest.Script{Lang: r.lang, Code: []byte(r.code)}.Job()
				if err != nil {
					return err
				}
				f, err := sb.Run(context.Background(), sandbox.Command{Argv: p.Prestart.Argv, Env: env,
					Stdin: guest.Stdin(p.Prestart.Prelude, stdin, nil)})
				if err == nil && (!f.Sandbox.Warm || f.Stdout != "1\n" || *f.ExitCode != 0) {
					b.Fatalf("not a warm run: %+v", f)
				}
				if err == nil {
					err = sb.Close()
				}
				return err
			}
			filled(b, d, p, 4)
			plain := measure(b, "bare", func() {}, bare(r.exe, r.flag, r.code))
			warm := measure(b, "warm", func() { filled(b, d, p, 4); time.Sleep(10 * time.Millisecond) }, one)
			b.ReportMetric(float64(plain)/float64(warm), "x-faster")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkUnsandboxed is the lower bound of BenchmarkWarm on this machine: the same interpreter, as ready for its
// job, but without a sandbox. It measures from the job to its output, without a wait for the end and without
// facts.
func BenchmarkUnsandboxed(b *testing.B) {
	const together = 8
	type waiting struct {
		*exec.Cmd
		in, out *os.File
	}
	for _, r := range scripts {
		b.Run(r.name, func(b *testing.B) {
			if _, err := os.Stat(r.exe); err != nil {
				b.Skipf("%s is not here", r.exe)
			}
			a := ahead(b, r.lang, r.exe)
			var ready []waiting
			more := func() {
				for range together {
					w := waiting{Cmd: exec.Command(a.Argv[0], a.Argv[1:]...)}
					w.Env = env
					stdin, in, ierr := os.Pipe()
					out, stdout, oerr := os.Pipe()
					w.in, w.out, w.Stdin, w.Stdout = in, out, stdin, stdout
					if err := errors.Join(ierr, oerr, w.Start(), stdin.Close(), stdout.Close()); err != nil {
						b.Fatal(err)
					}
					if _, err := io.WriteString(w.in, a.Prelude); err != nil {
						b.Fatal(err)
					}
					ready = append(ready, w)
				}
				time.Sleep(2 * time.Second) // nothing says when one is as ready as it gets
			}
			job, err := guest.Script{Lang: r.lang, Code: []byte(r.code)}.Job()
			if err != nil {
				b.Fatal(err)
			}
			stdin, err := io.ReadAll(job)
			if err != nil {
				b.Fatal(err)
			}
			answer := make([]byte, 2)
			plain := measure(b, "bare", func() {}, bare(r.exe, r.flag, r.code))
			var last *waiting
			var in, out int
			end := func() {
				if last != nil && errors.Join(last.in.Close(), last.Wait(), last.out.Close()) != nil {
					b.Fatal("it has not ended well")
				}
			}
			with := measure(b, "warm", func() {
				end()
				if len(ready) == 0 {
					more()
				}
				last, ready = &ready[0], ready[1:]
				in, out = int(last.in.Fd()), int(last.out.Fd()) // which wait from now on
				time.Sleep(10 * time.Millisecond)
			}, func() error {
				if _, err := unix.Write(in, stdin); err != nil { // in this thread, for waking another takes time
					return err
				}
				if n, err := unix.Read(out, answer); err != nil || n != len(answer) {
					return fmt.Errorf("an answer of %d bytes: %w", n, err)
				}
				return nil
			})
			end()
			for _, w := range ready {
				_ = w.Process.Kill() // no job will come
				_ = w.Wait()
			}
			b.ReportMetric(float64(plain)/float64(with), "x-faster")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkCold is the cost of a run without a prewarmed sandbox.
func BenchmarkCold(b *testing.B) {
	b.Run("python", func(b *testing.B) {
		p := python(b)
		d := pool.New(namespace.New(namespace.Options{}), pool.Options{})
		argv, head, err := guest.Start{Lang: guest.Python}.Command()
		if err != nil {
			b.Fatal(err)
		}
		p.Prestart = &sandbox.Prestart{Argv: append([]string{"/usr/bin/python3"}, argv...), Env: env, Prelude: head}
		beside(b, bare("/usr/bin/python3", "-c", "print(1)"), func() error {
			sb, err := d.Start(context.Background(), p)
			if err != nil {
				return err
			}
			if _, err = sb.Run(context.Background(), job(b, p.Prestart, "print(1)")); err != nil {
				return err
			}
			return sb.Close()
		})
	})
}

// BenchmarkEmpty is a run when no sandbox is ready but can be forked; the one before it is gone.
func BenchmarkEmpty(b *testing.B) {
	b.Run("python", func(b *testing.B) {
		p := python(b)
		d := newServed(b, 1, 2)
		filled(b, d, p, 1)
		p.Mounts = []sandbox.Mount{{Source: "/usr/share", Target: "/workspace/input"}} // no such sandbox can be ready
		idle := func() { time.Sleep(20 * time.Millisecond) }
		plain := measure(b, "bare", idle, bare("/usr/bin/python3", "-c", "print(1)"))
		empty := measure(b, "warm", idle, func() error {
			sb, err := d.Start(context.Background(), p)
			if err != nil {
				return err
			}
			f, err := sb.Run(context.Background(), job(b, p.Prestart, "print(1)"))
			if err == nil && (!f.Sandbox.Warm || f.Stdout != "1\n") {
				b.Fatalf("not forked: %+v", f)
			}
			if err != nil {
				return err
			}
			return sb.Close()
		})
		b.ReportMetric(float64(plain)/float64(empty), "x-faster")
		b.ReportMetric(0, "ns/op")
	})
}

// BenchmarkOverhead is the cost that a cold sandbox adds to the smallest program. Rows: a profile that was used
// before, as in waldo serve; a first one with prepared namespaces; and a start from nothing, as in waldo run.
func BenchmarkOverhead(b *testing.B) {
	idle := func() { time.Sleep(20 * time.Millisecond) }
	for _, r := range []struct {
		name  string
		ready int
		pool  int
	}{{"made ahead", 2, 4}, {"namespaces ahead", 2, 0}, {"from nothing", 0, 0}} {
		b.Run(r.name, func(b *testing.B) {
			d := pool.New(namespace.New(namespace.Options{Prewarm: r.ready}), pool.Options{Most: r.pool})
			defer d.Close()
			var before sandbox.Sandbox // the benchmark does not wait for its end
			end := func() {
				if before == nil {
					return
				}
				if err := before.Close(); err != nil {
					b.Fatal(err)
				}
				before = nil
			}
			defer end()
			sandboxed := func() (err error) {
				if before, err = d.Start(context.Background(), sandboxtest.Profile()); err == nil {
					_, err = before.Run(context.Background(), sandbox.Command{Argv: []string{"/bin/true"}, Env: env})
				}
				return err
			}
			if err := sandboxed(); err != nil {
				b.Fatal(err)
			}
			plain := measure(b, "bare", idle, bare("/bin/true"))
			with := measure(b, "sandboxed", func() { end(); idle() }, sandboxed)
			b.ReportMetric(float64((with-plain).Microseconds())/1000, "overhead-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkInTurns is a cold run and a forked one, in turns with prewarmed namespaces and without, so that the load of
// the machine is the same for both.
func BenchmarkInTurns(b *testing.B) {
	turns := func(b *testing.B, one [2]func() (sandbox.Sandbox, error)) {
		var took [2][]time.Duration
		for i := range 2 * b.N {
			v := (i + i/2) % 2
			time.Sleep(20 * time.Millisecond)
			began := time.Now()
			sb, err := one[v]()
			if err != nil {
				b.Fatal(err)
			}
			took[v] = append(took[v], time.Since(began))
			if err := sb.Close(); err != nil {
				b.Fatal(err)
			}
		}
		for v, name := range []string{"with", "without"} {
			slices.Sort(took[v])
			for _, q := range []int{50, 99} {
				b.ReportMetric(float64(took[v][len(took[v])*q/100].Microseconds())/1000, fmt.Sprintf("%s-p%d-ms", name, q))
			}
		}
		b.ReportMetric(0, "ns/op")
	}
	sandboxed := func(d sandbox.Driver, p sandbox.Profile, c func() sandbox.Command) func() (sandbox.Sandbox, error) {
		return func() (sandbox.Sandbox, error) {
			sb, err := d.Start(context.Background(), p)
			if err == nil {
				_, err = sb.Run(context.Background(), c())
			}
			return sb, err
		}
	}
	b.Run("cold", func(b *testing.B) {
		var one [2]func() (sandbox.Sandbox, error)
		for v, ready := range []int{2, 0} {
			d := namespace.New(namespace.Options{Prewarm: ready})
			defer d.Close()
			one[v] = sandboxed(d, sandboxtest.Profile(), func() sandbox.Command {
				return sandbox.Command{Argv: []string{"/bin/true"}, Env: env}
			})
		}
		turns(b, one)
	})
	b.Run("forked", func(b *testing.B) {
		var one [2]func() (sandbox.Sandbox, error)
		for v, ready := range []int{2, 0} {
			p, d := python(b), newServed(b, 1, ready)
			filled(b, d, p, 1)
			p.Mounts = []sandbox.Mount{{Source: "/usr/share", Target: "/workspace/input"}} // no such sandbox can be ready
			one[v] = sandboxed(d, p, func() sandbox.Command { return job(b, p.Prestart, "print(1)") })
		}
		turns(b, one)
	})
}

// BenchmarkOthers measures what others make of the same, where they are installed.
func BenchmarkOthers(b *testing.B) {
	for _, argv := range [][]string{
		{"bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
			"--cap-drop", "ALL"},
		{"firejail", "--quiet", "--net=none", "--private", "--caps.drop=all", "--seccomp"},
	} {
		b.Run(argv[0], func(b *testing.B) {
			if _, err := exec.LookPath(argv[0]); err != nil {
				b.Skipf("%s is not installed", argv[0])
			}
			args := append(slices.Clone(argv[1:]), "/usr/bin/python3", "-c", "print(1)")
			beside(b, bare("/usr/bin/python3", "-c", "print(1)"), bare(argv[0], args...))
		})
	}
}

// BenchmarkRunc measures runc, which wants a folder with its configuration and a root.
func BenchmarkRunc(b *testing.B) {
	if _, err := exec.LookPath("runc"); err != nil || os.Geteuid() != 0 {
		b.Skip("runc is not installed, or this is not root")
	}
	dir := b.TempDir()
	c := exec.Command("runc", "spec")
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		b.Fatalf("runc spec: %v %s", err, out)
	}
	spec, err := os.ReadFile(dir + "/config.json")
	if err != nil {
		b.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(spec, &config); err != nil {
		b.Fatal(err)
	}
	process := config["process"].(map[string]any)
	process["terminal"], process["args"] = false, []string{"/usr/bin/python3", "-c", "print(1)"}
	root, err := os.MkdirTemp("", "waldo-runc-") // not in dir, which is removed with all that is in it
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = errors.Join(unix.Unmount(root, unix.MNT_DETACH), os.Remove(root)) }()
	if err := unix.Mount("/", root, "", unix.MS_BIND, ""); err != nil {
		b.Skip(err)
	}
	config["root"].(map[string]any)["path"] = root
	config["mounts"] = slices.DeleteFunc(config["mounts"].([]any),
		func(m any) bool { return m.(map[string]any)["type"] == "cgroup" })
	if spec, err = json.Marshal(config); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(dir+"/config.json", spec, 0o600); err != nil {
		b.Fatal(err)
	}
	n := 0
	run := func() error {
		n++
		out, err := exec.Command("runc", "run", "--bundle", dir,
			fmt.Sprintf("waldo-bench-%d-%d", os.Getpid(), n)).CombinedOutput()
		if err != nil || string(out) != "1\n" {
			return fmt.Errorf("runc: %v %s", err, out)
		}
		return nil
	}
	if err := run(); err != nil {
		b.Skip(err)
	}
	beside(b, bare("/usr/bin/python3", "-c", "print(1)"), run)
}

// beside measures f and, in the same minute, the bare interpreter.
func beside(b *testing.B, plain, f func() error) {
	without := measure(b, "bare", func() {}, plain)
	with := measure(b, "warm", func() {}, f)
	b.ReportMetric(float64(without)/float64(with), "x-faster")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSustained runs as fast as the pool fills, two at a time: runs without a prewarmed sandbox are cold.
func BenchmarkSustained(b *testing.B) {
	p := python(b)
	d := newServed(b, 8, 2)
	filled(b, d, p, 8)
	var warm atomic.Int64
	began := time.Now()
	b.SetParallelism(1)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			sb, err := d.Start(context.Background(), p)
			if err != nil {
				b.Fatal(err)
			}
			f, err := sb.Run(context.Background(), job(b, p.Prestart, "print(1)"))
			if err != nil || f.Stdout != "1\n" {
				b.Fatalf("%v %+v", err, f)
			}
			if f.Sandbox.Warm {
				warm.Add(1)
			}
			if err := sb.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	rate := float64(b.N) / time.Since(began).Seconds()
	plain := twoAtATime(b, 100, bare("/usr/bin/python3", "-c", "print(1)"))
	floor := twoAtATime(b, 1000, namespaces)
	b.ReportMetric(rate, "runs/s")
	b.ReportMetric(floor, "floor-runs/s")
	b.ReportMetric(plain, "bare-runs/s")
	b.ReportMetric(rate/plain, "x-bare")
	b.ReportMetric(float64(warm.Load())/float64(b.N), "warm-share")
	b.ReportMetric(0, "ns/op")
}

// twoAtATime returns how often a second f can be done.
func twoAtATime(b *testing.B, n int, f func() error) float64 {
	began := time.Now()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range n / 2 {
				if err := f(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return float64(n) / time.Since(began).Seconds()
}

// BenchmarkMemory says what one waiting sandbox costs: the memory that is its own alone, in MB.
func BenchmarkMemory(b *testing.B) {
	p := python(b)
	d := newServed(b, 8, 2)
	filled(b, d, p, 8)
	time.Sleep(2 * time.Second) // so that all that is imported ahead is there
	private, proportional, n := int64(0), int64(0), 0
	for _, init := range childrenOf(b, "self") {
		for _, pid := range childrenOf(b, init) { // the zygote has none: its sandboxes are waldo's
			private += dirty(b, init) + dirty(b, pid)
			proportional += memory(b, init, "Pss:") + memory(b, pid, "Pss:")
			n++
		}
	}
	if n != 8 {
		b.Fatalf("%d commands wait, not 8", n)
	}
	b.ReportMetric(float64(private)/8/1024, "MB/sandbox")
	b.ReportMetric(float64(proportional)/8/1024, "PSS-MB/sandbox")
	b.ReportMetric(0, "ns/op")
}

func childrenOf(b *testing.B, pid string) (out []string) {
	tasks, _ := filepath.Glob("/proc/" + pid + "/task/*/children")
	for _, t := range tasks {
		text, err := os.ReadFile(t)
		if err != nil {
			b.Fatal(err)
		}
		out = append(out, strings.Fields(string(text))...)
	}
	return out
}

// dirty reads how much memory is a process's own alone, in KiB.
func dirty(b *testing.B, pid string) int64 { return memory(b, pid, "Private_Dirty:") }

// memory reads one line of the kernel's memory statistics of a process, in KiB.
func memory(b *testing.B, pid, what string) (kib int64) {
	text, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
	if err != nil {
		b.Skipf("only root sees the memory of a sandbox: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, what); ok {
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				b.Fatal(err)
			}
		}
	}
	return kib
}
