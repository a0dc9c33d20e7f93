//go:build unix

package a2a

import (
	"bufio"
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"waldo/internal/app"
	"waldo/internal/app/configfile"
	"waldo/internal/core/approval"
)

// The variables that make this test binary a waldo of its own: its folder, where it kills itself, and where it listens.
const (
	folderOf = "A2A_TEST_FOLDER"
	killAt   = "A2A_TEST_KILL"
	listenAt = "A2A_TEST_LISTEN"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(folderOf); dir != "" {
		if err := child(dir, os.Getenv(killAt)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child serves until its standard input ends. A note leaves a line in a file.
func child(dir, at string) error {
	noted := &atomic.Int32{}
	killHere = func(place string) {
		if place == "in the call" {
			f, err := os.OpenFile(filepath.Join(dir, "notes"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err == nil {
				_, _ = f.WriteString("note\n")
				_ = f.Close()
			}
		}
		for place == "in the call" && at == "wait" { // until the test lets it end
			if _, err := os.Stat(filepath.Join(dir, "go")); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if place == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	h, err := app.New(context.Background(), app.Options{State: filepath.Join(dir, "state"), Version: "1",
		Source:  configfile.Source{Config: filepath.Join(dir, "waldo.yaml")},
		Openers: []app.Opener{Feature.Open}, Tools: []app.Toolbox{toolbox(noted)}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	err = h.ServeHTTP(ctx, cmp.Or(os.Getenv(listenAt), "127.0.0.1:0"), nil, false,
		func(a net.Addr) { fmt.Println("http://" + a.String()) })
	if err != nil {
		return err
	}
	return h.Close()
}

// process starts a waldo of its own in a folder.
func process(t *testing.T, dir, at string) (url string, wait func()) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), folderOf+"="+dir, killAt+"="+at)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("it does not listen")
	}
	return lines.Text(), func() {
		if at == "" {
			_ = in.Close()
		}
		_ = c.Wait() // a killed one says so
	}
}

// TestKilled: waldo is killed in a call. The next one has the task, and makes the write no second time: it says that the
// outcome is unknown. The read is made again.
func TestKilled(t *testing.T) {
	for name, row := range map[string]struct {
		skill, at string
		state     State
		notes     int
	}{
		"in a write":       {"t.write", "in the call", Failed, 1},
		"control: no kill": {"t.write", "", Completed, 1},
		"in a read":        {"t.read", "in the call", Completed, 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "waldo.yaml"), []byte("version: 1\ncapabilities:\n"+
				"  t.write: {transport: direct, mode: write, approval: none, a2a: {expose: true}}\n"+
				"  t.read: {transport: direct, mode: read, approval: none, a2a: {expose: true}}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			b := &bench{t: t}
			var wait func()
			b.url, wait = process(t, dir, row.at)
			_, body := b.do("POST", "/a2a/message:send", strings.TrimSuffix(message(row.skill, "x"), "}")+
				`,"configuration":{"returnImmediately":true}}`)
			_, rest, _ := strings.Cut(body, `"id":"`)
			task, _, _ := strings.Cut(rest, `"`)
			if row.at == "" {
				b.until(task, row.state)
			}
			wait()
			b.url, wait = process(t, dir, "")
			defer wait()
			done := b.until(task, row.state)
			notes, err := os.ReadFile(filepath.Join(dir, "notes"))
			if err != nil || strings.Count(string(notes), "note") != row.notes {
				t.Errorf("noted %d times, want %d: %v", strings.Count(string(notes), "note"), row.notes, err)
			}
			if row.state == Failed && (!strings.Contains(said(done), "idempotency.unknown") ||
				strings.Contains(said(done), "Nothing was done") || done.Metadata["waldo/side_effect"] != "unknown") {
				t.Errorf("%s %v", said(done), done.Metadata)
			}
			time.Sleep(2 * every) // it makes the call no more
			if again, err := os.ReadFile(filepath.Join(dir, "notes")); err != nil || string(again) != string(notes) {
				t.Errorf("noted again: %q, %v", again, err)
			}
		})
	}
}

// deep is one of three waldos that call each other, a process of its own at an address that stays.
type deep struct {
	dir, listen string
	c           *exec.Cmd
}

func (d *deep) start(t *testing.T, at string) {
	t.Helper()
	d.c = exec.CommandContext(t.Context(), os.Args[0])
	d.c.Env = append(os.Environ(), folderOf+"="+d.dir, killAt+"="+at, listenAt+"="+d.listen)
	d.c.Stderr = os.Stderr
	if _, err := d.c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := d.c.StdoutPipe()
	if err == nil {
		err = d.c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bufio.NewScanner(out).Scan() {
		t.Fatal("it does not listen")
	}
}

func (d *deep) kill() {
	_ = d.c.Process.Kill()
	_ = d.c.Wait()
}

// three starts three waldos that call each other, the bottom first. Each text is the capabilities of one, and %q stands
// for the address of the one below.
func three(t *testing.T, at string, texts [3]string) (all [3]*deep, url string) {
	t.Helper()
	for i, text := range texts {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		all[i] = &deep{dir: t.TempDir(), listen: l.Addr().String()}
		_ = l.Close()
		if i > 0 {
			text = fmt.Sprintf(text, url)
		}
		url = "http://" + all[i].listen
		if err := os.WriteFile(filepath.Join(all[i].dir, "waldo.yaml"),
			[]byte("version: 1\ncapabilities:\n"+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		all[i].start(t, at)
		t.Cleanup(all[i].kill)
	}
	return all, url
}

// notes is how often the bottom wrote.
func (d *deep) notes() int {
	text, _ := os.ReadFile(filepath.Join(d.dir, "notes"))
	return strings.Count(string(text), "note")
}

// approvals are those of a waldo, as waldo approve opens them.
func (d *deep) approvals(t *testing.T) *approval.Service {
	t.Helper()
	state := filepath.Join(d.dir, "state")
	cfg, err := configfile.Source{Config: filepath.Join(d.dir, "waldo.yaml")}.Load(state)
	if err != nil {
		t.Fatal(err)
	}
	k, closes, err := app.ApprovalsOnRecord(t.Context(), state, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closes() })
	return k
}

// approver is a person with a key of her own.
func approver(t *testing.T, name string) (approval.Signer, ed25519.PublicKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return approval.NewSigner(name, private), public
}

// TestAnsweredAtTheTop: the question at the bottom of three waldos travels to the top. There a person signs the answer,
// which counts at the bottom because she is enrolled there. That of another is refused, and the question stays.
func TestAnsweredAtTheTop(t *testing.T) {
	for name, row := range map[string]struct {
		yes, kill bool
		state     State
		notes     int
		says      string
	}{
		"a yes":                        {true, false, Completed, 1, "wrote x"},
		"a no":                         {false, false, Failed, 0, "denied"},
		"the middle killed, and a yes": {true, true, Failed, 1, "known"},
	} {
		t.Run(name, func(t *testing.T) {
			const over = "approval: {carriers: [a2a]}\n"
			all, url := three(t, "", [3]string{
				"  t.write: {transport: direct, mode: write, approval: always, timeout_seconds: 60, a2a: {expose: true}}\n" + over,
				"  b.*: {transport: a2a, mode: write, approval: none, timeout_seconds: 60, a2a: {expose: true}}\npeers: {b: {url: %q}}\n" + over,
				"  m.*: {transport: a2a, mode: write, approval: none, timeout_seconds: 60, a2a: {expose: true}}\npeers: {m: {url: %q}}\n" + over})
			bottom, top := all[0].approvals(t), all[2].approvals(t)
			root, rootKey := approver(t, "root")
			carol, key := approver(t, "carol")
			mallory, malloryKey := approver(t, "mallory")
			_, rerr := bottom.EnrollKey(t.Context(), "root", nil, rootKey, root)
			_, berr := bottom.EnrollKey(t.Context(), "carol", nil, key, root)
			_, terr := top.EnrollKey(t.Context(), "carol", nil, key, carol)
			_, merr := top.EnrollKey(t.Context(), "mallory", nil, malloryKey, carol)
			if err := errors.Join(rerr, berr, terr, merr); err != nil {
				t.Fatal(err)
			}
			b := &bench{t: t, url: url}
			_, body := b.do("POST", "/a2a/message:send",
				`{"message":{"messageId":"deep","role":"ROLE_USER","metadata":{"skill":"m.b.t.write"},`+
					`"parts":[{"data":{"arguments":{"arguments":{"text":"x"}}}}]}}`)
			_, rest, _ := strings.Cut(body, `"id":"`)
			id, _, _ := strings.Cut(rest, `"`)
			asks := b.until(id, InputRequired)
			if !strings.Contains(said(asks), "may t.write be called") || asks.Metadata[questionMember] == nil {
				t.Fatalf("the question does not travel: %s %+v", said(asks), asks.Metadata)
			}
			open, err := top.AllElsewhere(t.Context())
			if err != nil || len(open) != 1 || open[0].Peer != "m" || open[0].Question.Capability != "t.write" {
				t.Fatalf("%+v %v", open, err)
			}
			if err := top.SignElsewhere(t.Context(), mallory, open[0], true, ""); err != nil {
				t.Fatal(err)
			}
			refused := ""
			for end := time.Now().Add(2 * time.Minute); refused == "" && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if e, err := top.Elsewhere(t.Context(), open[0].Question.ID); err == nil {
					refused = e.Refused
				}
			}
			if !strings.Contains(refused, "approval.not_enrolled") || all[0].notes() != 0 {
				t.Errorf("an approver of the top alone: %q, noted %d times", refused, all[0].notes())
			}
			if row.kill {
				all[1].kill()
				all[1].start(t, "")
				q, err := bottom.Pending(t.Context())
				if err != nil || len(q) != 1 || bottom.Answer(t.Context(), root, q[0], true, "") != nil {
					t.Fatal(q, err)
				}
			} else if err := top.SignElsewhere(t.Context(), carol, open[0], row.yes, "not today"); err != nil {
				t.Fatal(err)
			}
			if done := b.until(id, row.state); !strings.Contains(said(done)+result(done), row.says) {
				t.Errorf("%s %s", said(done), result(done))
			}
			for end := time.Now().Add(10 * time.Second); all[0].notes() < row.notes && time.Now().Before(end); {
				time.Sleep(50 * time.Millisecond)
			}
			time.Sleep(2 * every) // no one makes the call again
			if all[0].notes() != row.notes {
				t.Errorf("noted %d times", all[0].notes())
			}
			if left, err := top.AllElsewhere(t.Context()); err != nil || len(left) != 0 {
				t.Errorf("questions that wait no longer are shown: %+v %v", left, err)
			}
		})
	}
}

// TestKilledThreeDeep: a waldo calls a waldo that calls a waldo, and one of them is killed during the write at the bottom.
// The write is made once, and the task at the top ends: it says that the outcome is not known, or has the result. A second
// message with the same key makes no other write, and the next write goes through.
func TestKilledThreeDeep(t *testing.T) {
	for name, row := range map[string]struct {
		killed int // from the bottom
		state  State
	}{"control: none": {-1, Completed}, "the bottom": {0, Failed}, "the middle": {1, Failed}, "the top": {2, Failed}} {
		t.Run(name, func(t *testing.T) {
			all, url := three(t, "wait", [3]string{"  t.write: {transport: direct, mode: write, approval: none, timeout_seconds: 60, a2a: {expose: true}}",
				"  b.*: {transport: a2a, mode: write, approval: none, timeout_seconds: 60, a2a: {expose: true}}\npeers: {b: {url: %q}}",
				"  m.*: {transport: a2a, mode: write, approval: none, timeout_seconds: 60, a2a: {expose: true}}\npeers: {m: {url: %q}}"})
			notes := all[0].notes
			b := &bench{t: t, url: url}
			send := func(message, key string) string {
				_, body := b.do("POST", "/a2a/message:send", `{"message":{"messageId":"`+message+`","role":"ROLE_USER",`+
					`"metadata":{"skill":"m.b.t.write"},"parts":[{"data":{"arguments":{"arguments":{"text":"x"}}}}]},`+
					`"configuration":{"returnImmediately":true}}`, "Idempotency-Key", key)
				return body
			}
			body := send("deep", "k1")
			_, rest, _ := strings.Cut(body, `"id":"`)
			task, _, _ := strings.Cut(rest, `"`)
			for end := time.Now().Add(20 * time.Second); notes() == 0 && time.Now().Before(end); {
				time.Sleep(20 * time.Millisecond)
			}
			if notes() != 1 {
				t.Fatalf("noted %d times: %s", notes(), body)
			}
			if row.killed >= 0 {
				all[row.killed].kill()
				all[row.killed].start(t, "wait")
			}
			if err := os.WriteFile(filepath.Join(all[0].dir, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			done := b.until(task, row.state)
			if row.state == Failed && !strings.Contains(said(done), "known") {
				t.Errorf("it does not say that the outcome is unknown: %s", said(done))
			}
			time.Sleep(2 * every) // no one makes the call again
			for _, row := range []struct {
				message, key string
				state        State
				notes        int
			}{{"again", "k1", row.state, 1}, {"next", "k2", Completed, 2}} {
				_, rest, _ := strings.Cut(send(row.message, row.key), `"id":"`)
				task, _, _ := strings.Cut(rest, `"`)
				if b.until(task, row.state); notes() != row.notes {
					t.Errorf("%s: noted %d times, want %d", row.message, notes(), row.notes)
				}
			}
		})
	}
}
