//go:build unix

package reliability

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The two programs of TestUpgrade; scripts/upgrade.sh builds them.
const (
	upgradeFrom = "WALDO_UPGRADE_FROM"
	upgradeTo   = "WALDO_UPGRADE_TO"
)

// TestUpgrade: clients write while an earlier waldo hands its state directory over. Then the later one runs beside it,
// the earlier one ends, and the later one gets the socket, as under systemd. Each write is acknowledged in the end and
// acted once, also those that were acknowledged by the earlier waldo, and the log holds them all.
func TestUpgrade(t *testing.T) {
	from, to := os.Getenv(upgradeFrom), os.Getenv(upgradeTo)
	if from == "" || to == "" {
		t.Skipf("scripts/upgrade.sh builds the two programs that $%s and $%s name", upgradeFrom, upgradeTo)
	}
	b := newBench(t, "idempotency: {window: 1h}, "+settles)
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	file, err := socket.(*net.TCPListener).File() // as systemd holds it: connections wait while no waldo runs
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var w writers
	w.url = "http://" + socket.Addr().String() + "/mcp"
	old := b.service(t, from, file)
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() { w.write(ctx, n) })
	}
	w.until(t, ctx, 200)
	before := w.acked.Load()
	beside := b.service(t, to, nil) // it migrates; the earlier one goes on
	w.until(t, ctx, before+100)
	end(t, beside)
	w.until(t, ctx, w.acked.Load()+50)
	end(t, old)
	next := b.service(t, to, file)
	w.until(t, ctx, w.acked.Load()+200)
	w.done.Store(true)
	all.Wait()
	end(t, next)
	var twice, lost int
	for title := range w.titles() {
		switch b.effects(t, title) {
		case 0:
			lost++
		case 1:
		default:
			twice++
		}
	}
	t.Logf("%d writes were acknowledged, %d of them by the earlier waldo alone; %d were repeated; lost %d, twice %d",
		w.acked.Load(), before, w.again.Load(), lost, twice)
	if lost+twice > 0 || ctx.Err() != nil {
		t.Errorf("lost %d, done twice %d, %v", lost, twice, ctx.Err())
	}
	copies, err := filepath.Glob(filepath.Join(b.dir, "state", "waldo.db.v*"))
	if a, z := schema(t, from), schema(t, to); err != nil || (len(copies) == 1) != (a < z) {
		t.Errorf("from schema %d to %d: copies of the database: %v %v", a, z, copies, err)
	}
	said, err := exec.Command(to, "--config", filepath.Join(b.dir, "waldo.yaml"), "--state", filepath.Join(b.dir, "state"), "log",
		"--json", "-n", "0", "--kind", "decision").Output()
	if err != nil {
		t.Fatal(err)
	}
	for title := range w.titles() {
		if !strings.Contains(string(said), `"`+title+`"`) {
			t.Errorf("the log does not hold %s", title)
		}
	}
	if said, err := exec.Command(to, "--state", filepath.Join(b.dir, "state"), "log", "verify").CombinedOutput(); !strings.Contains(string(said), "sound") {
		t.Errorf("%v: %s", err, said)
	}
}

// service starts waldo serve at a socket, or at a port of its own, and waits until it serves.
func (b bench) service(t *testing.T, program string, socket *os.File) *exec.Cmd {
	t.Helper()
	args := []string{program, "--config", filepath.Join(b.dir, "waldo.yaml"), "--state", filepath.Join(b.dir, "state"), "serve"}
	c := exec.Command("/bin/sh", append([]string{"-c", `export LISTEN_PID=$$; exec "$@"`, "sh"}, args...)...)
	c.Env = append(os.Environ(), "LISTEN_FDS=1")
	c.ExtraFiles = []*os.File{socket}
	if socket == nil {
		c = exec.Command(program, append(args[1:], "--listen", "127.0.0.1:0")...)
	}
	said, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	ready := make(chan string, 1)
	go func() {
		buf := make([]byte, 1<<16)
		n, _ := said.Read(buf)
		ready <- string(buf[:n])
		for {
			if n, err := said.Read(buf); err != nil {
				return
			} else {
				t.Logf("%s: %s", filepath.Base(program), buf[:n])
			}
		}
	}()
	select {
	case line := <-ready:
		if !strings.Contains(line, "listening") {
			t.Fatalf("%s: %s", program, line)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s does not serve", program)
	}
	return c
}

// schema is that which a waldo writes.
func schema(t *testing.T, program string) (n int) {
	t.Helper()
	said, err := exec.Command(program, "version", "--json").Output()
	var v struct{ Schema int }
	if err := errors.Join(err, json.Unmarshal(said, &v)); err != nil || v.Schema == 0 {
		t.Fatalf("%s: %s %v", program, said, err)
	}
	return v.Schema
}

// end ends a waldo as systemd does.
func end(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Logf("it ended with %v", err)
	}
}

// writers are clients that write, each write until it is acknowledged.
type writers struct {
	url          string
	acked, again atomic.Int64
	done         atomic.Bool
	all          sync.Map // titles
}

func (w *writers) titles() func(func(string) bool) {
	return func(yield func(string) bool) { w.all.Range(func(k, _ any) bool { return yield(k.(string)) }) }
}

// until waits for a number of acknowledged writes.
func (w *writers) until(t *testing.T, ctx context.Context, n int64) {
	t.Helper()
	for w.acked.Load() < n {
		if ctx.Err() != nil {
			t.Fatalf("%d of %d writes were acknowledged", w.acked.Load(), n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// write makes 25 writes a second at most, one behind the other, with a session for as long as it lasts.
func (w *writers) write(ctx context.Context, n int) {
	var s *mcp.ClientSession
	for i := 0; !w.done.Load() && ctx.Err() == nil; i++ {
		title := fmt.Sprintf("u%d-%d", n, i)
		for try := 0; ctx.Err() == nil; try++ {
			if try > 0 {
				w.again.Add(1)
				time.Sleep(50 * time.Millisecond)
			}
			err := w.once(ctx, &s, title)
			if err == nil {
				w.all.Store(title, nil)
				w.acked.Add(1)
				break
			}
		}
		time.Sleep(40 * time.Millisecond)
	}
	if s != nil {
		_ = s.Close()
	}
}

func (w *writers) once(ctx context.Context, s **mcp.ClientSession, title string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if *s == nil {
		var err error
		if *s, err = mcp.NewClient(&mcp.Implementation{Name: "writer", Version: "1"}, nil).Connect(context.WithoutCancel(ctx),
			&mcp.StreamableClientTransport{Endpoint: w.url, MaxRetries: -1}, nil); err != nil {
			*s = nil
			return err
		}
	}
	r, err := (*s).CallTool(ctx, &mcp.CallToolParams{Name: "s__create", Arguments: map[string]any{"title": title, "how": ""},
		Meta: mcp.Meta{"waldo/idempotency_key": title}})
	if err != nil {
		_ = (*s).Close()
		*s = nil
		return err
	}
	if r.IsError {
		return errors.New("it failed")
	}
	return nil
}
