//go:build unix

package a2a

import (
	"bufio"
	"context"
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
)

// The variables that make this test binary a waldo of its own: its folder, and where it kills itself.
const (
	folderOf = "A2A_TEST_FOLDER"
	killAt   = "A2A_TEST_KILL"
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
	err = h.ServeHTTP(ctx, "127.0.0.1:0", nil, false, func(a net.Addr) { fmt.Println("http://" + a.String()) })
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
			if row.state == Failed && !strings.Contains(said(done), "idempotency.unknown") {
				t.Errorf("%s", said(done))
			}
			time.Sleep(2 * every) // it makes the call no more
			if again, err := os.ReadFile(filepath.Join(dir, "notes")); err != nil || string(again) != string(notes) {
				t.Errorf("noted again: %q, %v", again, err)
			}
		})
	}
}
