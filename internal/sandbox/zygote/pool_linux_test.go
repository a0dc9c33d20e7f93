//go:build linux

package zygote

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// hello is an interpreter that says that it waits, and waits until waldo is gone.
var hello = Options{Argv: []string{"/bin/sh", "-c", "printf hello >&3; exec cat <&3 >/dev/null"},
	Env:   []string{"PATH=/usr/bin:/bin"},
	Hello: 5, UID: os.Geteuid(), GID: os.Getegid()}

func newPool(t *testing.T, r Rotation) (*Pool, *atomic.Int32) {
	var started atomic.Int32
	n := &Pool{Rotation: r, Start: func(ctx context.Context, _ Kind) (*Zygote, error) {
		started.Add(1)
		return Start(ctx, hello)
	}}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if err := n.Keep(context.Background(), Kind{}); err == nil {
			t.Error("a closed pool makes zygotes")
		}
	})
	return n, &started
}

func keep(t *testing.T, n *Pool, k Kind) *Zygote {
	t.Helper()
	if err := n.Keep(context.Background(), k); err != nil {
		t.Fatal(err)
	}
	z := n.Get(k)
	if z == nil {
		t.Fatal("none is ready")
	}
	return z
}

// TestDomains: a zygote serves one domain and one interpreter.
func TestDomains(t *testing.T) {
	n, started := newPool(t, Rotation{Most: 100, Age: time.Hour})
	a := keep(t, n, Kind{Argv: "python", Domain: "a"})
	if keep(t, n, Kind{Argv: "python", Domain: "a"}) != a || started.Load() != 1 {
		t.Error("control: the same kind has another zygote")
	}
	for _, k := range []Kind{{Argv: "python", Domain: "b"}, {Argv: "python"}, {Argv: "other", Domain: "a"},
		{Argv: "python", Head: "x", Domain: "a"}} {
		if n.Get(k) != nil {
			t.Errorf("%+v has a zygote that nobody made for it", k)
		}
		if keep(t, n, k) == a {
			t.Errorf("%+v has the zygote of another", k)
		}
	}
}

// TestRotation: one that has made enough, or is old, is replaced, and serves until it is.
func TestRotation(t *testing.T) {
	for _, r := range []struct {
		why string
		Rotation
		same bool
	}{
		{"young", Rotation{Most: 100, Age: time.Hour}, true},
		{"has made enough", Rotation{Most: 1, Age: time.Hour}, false},
		{"old", Rotation{Most: 100, Age: time.Nanosecond}, false},
	} {
		n, _ := newPool(t, r.Rotation)
		first := keep(t, n, Kind{})
		if err := first.Fork(0); err != nil {
			t.Fatal(err)
		}
		if again := keep(t, n, Kind{}); (again == first) != r.same {
			t.Errorf("%s: the same zygote: %v", r.why, again == first)
		}
	}
}

// TestMost: very many kinds do not have very many zygotes.
func TestMost(t *testing.T) {
	n, _ := newPool(t, Rotation{Most: 100, Age: time.Hour})
	for i := range Most + 3 {
		keep(t, n, Kind{Domain: strings.Repeat("x", i)})
	}
	if n.Get(Kind{}) != nil || len(n.all) != Most {
		t.Errorf("%d zygotes, and the first is there", len(n.all))
	}
}

// TestNotReady: a program that cannot become a zygote returns the reason, and leaves no process behind.
func TestNotReady(t *testing.T) {
	for _, r := range []struct{ code, want string }{{"echo no modules here >&2; exit 3", "no modules here"},
		{"exec sleep 60", "not ready"}} {
		o := hello
		o.Argv = []string{"/bin/sh", "-c", r.code}
		patience := time.Minute
		if r.want == "not ready" {
			patience = 300 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_, err := Start(ctx, o)
		cancel()
		if err == nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s: %v", r.code, err)
		}
	}
	o := hello
	o.Argv = []string{"/nonexistent"}
	if _, err := Start(context.Background(), o); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// TestDiesWithWaldo: a killed waldo leaves no zygote.
func TestDiesWithWaldo(t *testing.T) {
	if os.Getenv("ZYGOTE_OF") != "" {
		o := hello
		o.Argv = []string{"/bin/sh", "-c", "printf hello >&3; exec sleep 300"} // independent of its socket's end
		z, err := Start(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("pid " + strconv.Itoa(z.process.Pid) + "\n")
		time.Sleep(time.Minute)
	}
	c := exec.Command("/proc/self/exe", "-test.run", "^TestDiesWithWaldo$")
	c.Env = append(os.Environ(), "ZYGOTE_OF=test")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, _ := out.Read(buf)
	_, pid, ok := strings.Cut(strings.TrimSpace(string(buf[:n])), "pid ")
	if !ok {
		t.Fatalf("%q", buf[:n])
	}
	if _, err := os.Stat("/proc/" + pid); err != nil {
		t.Fatalf("control: %v", err)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the zygote is still there")
		}
	}
}
