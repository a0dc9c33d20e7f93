//go:build linux && (amd64 || arm64)

package pool_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/facts"
	"waldo/internal/guest"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/sandbox/pool"
	"waldo/internal/sandbox/sandboxtest"
)

var env = []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8"}

// ahead is the interpreter that a profile of the tests starts with.
func ahead(t testing.TB, lang guest.Lang, exe string) *sandbox.Ahead {
	t.Helper()
	argv, head, err := guest.Start{Lang: lang, Warm: true}.Command()
	if err != nil {
		t.Fatal(err)
	}
	return &sandbox.Ahead{Argv: append([]string{exe}, argv...), Env: env, Head: head}
}

// job is the command that the waiting interpreter of a is for.
func job(t testing.TB, a *sandbox.Ahead, code string, args ...string) sandbox.Command {
	t.Helper()
	stdin, err := guest.Script{Lang: guest.Python, Code: []byte(code), Args: args}.Job()
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Command{Argv: a.Argv, Env: a.Env, Stdin: io.MultiReader(strings.NewReader(a.Head), stdin)}
}

func python(t testing.TB) sandbox.Profile {
	p := sandboxtest.Profile()
	p.Ahead = ahead(t, guest.Python, "/usr/bin/python3")
	return p
}

func newPool(t testing.TB, most int) *pool.Driver {
	t.Helper()
	d := pool.New(namespace.New(namespace.Options{}), pool.Options{Most: most, Failed: func(err error) { t.Errorf("behind the runs: %v", err) }})
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the pool: %v", err)
		}
	})
	return d
}

// filled waits until n boxes are ready for the profile.
func filled(t testing.TB, d *pool.Driver, p sandbox.Profile, n int) {
	t.Helper()
	d.Keep(p, n)
	for end := time.Now().Add(20 * time.Second); d.Ready(p) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d boxes are ready, not %d", d.Ready(p), n)
		}
	}
}

// run runs code in a box that was waiting.
func run(t testing.TB, d *pool.Driver, p sandbox.Profile, code string, args ...string) facts.Facts {
	t.Helper()
	filled(t, d, p, 1)
	b, err := d.Start(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	f, err := b.Run(context.Background(), job(t, p.Ahead, code, args...))
	if err != nil {
		t.Fatal(err)
	}
	if !f.Sandbox.Warm {
		t.Error("control: the box was not warm")
	}
	return f
}

// warm makes every box of the suite come from the pool, and every Python program of it run in the
// interpreter that was waiting there.
type warm struct {
	*pool.Driver
	t    *testing.T
	runs *int
}

func (w warm) Start(ctx context.Context, p sandbox.Profile) (sandbox.Box, error) {
	p.Ahead = ahead(w.t, guest.Python, "python3")
	if refused, err := w.Driver.Driver.Start(ctx, p); err != nil {
		return nil, err // what the driver refuses cold can never be ready
	} else if err := refused.Close(); err != nil {
		return nil, err
	}
	if len(p.Mounts) == 0 {
		filled(w.t, w.Driver, p, 1)
	}
	b, err := w.Driver.Start(ctx, p)
	return warmBox{b, w, p}, err
}

type warmBox struct {
	sandbox.Box
	w warm
	p sandbox.Profile
}

func (b warmBox) Run(ctx context.Context, c sandbox.Command) (facts.Facts, error) {
	a := b.p.Ahead
	if len(c.Argv) >= 5 && slices.Equal(c.Argv[:4], []string{"python3", "-I", "-S", "-c"}) && slices.Equal(c.Env, env) {
		j := job(b.w.t, a, c.Argv[4], c.Argv[5:]...)
		if c.Stdin != nil {
			j.Stdin = io.MultiReader(j.Stdin, c.Stdin)
		}
		c.Argv, c.Stdin = j.Argv, j.Stdin
	}
	f, err := b.Box.Run(ctx, c)
	if f.Sandbox.Warm {
		*b.w.runs++
	}
	return f, err
}

// TestConformance holds boxes from the pool to the suite of every driver.
func TestConformance(t *testing.T) {
	runs := 0
	sandboxtest.Run(t, warm{newPool(t, 2), t, &runs})
	if runs < 20 {
		t.Errorf("only %d runs were warm", runs)
	}
	t.Logf("%d runs were warm", runs)
}

func TestMain(m *testing.M) {
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		fmt.Println("pool: the tests need /usr/bin/python3")
		os.Exit(1)
	}
	os.Exit(m.Run())
}
