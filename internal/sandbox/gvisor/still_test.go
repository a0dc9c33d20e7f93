//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/testing/sandboxtest"
)

// TestStill: the facts of a command come with all its output and its status, and processes that it leaves
// behind no longer run.
func TestStill(t *testing.T) {
	d := driver(t)
	late := "(while :; do echo x >>/workspace/output/late; done) & while [ ! -s /workspace/output/late ]; do :; done; "
	for _, r := range []struct {
		why, code string
		exit      int
		signal    string
		bytes     int
	}{
		{"it ends while another goes on", late + "exit 3", 3, "", 0},
		{"it is killed while another goes on", late + "kill -9 $$", 0, "SIGKILL", 0},
		{"all output is there, of a pipe's size and more", "head -c 200000 /dev/zero | tr '\\0' x", 0, "", 200_000},
		{"a thread ends it all",
			"exec python3 -c 'import os, threading, time\nthreading.Thread(target=lambda: os._exit(4)).start()\ntime.sleep(60)'",
			4, "", 0},
		{"its first thread ends, and the others go on",
			"exec python3 -c 'import ctypes, os, threading, time\nthreading.Thread(target=lambda: (time.sleep(.3), " +
				"print(\"x\", end=\"\", flush=True), os._exit(5))).start()\nctypes.CDLL(None).pthread_exit(None)'", 5, "", 1},
		{"whoever it would make beside itself does not end it",
			"exec python3 -c 'import ctypes, os, time\nif ctypes.CDLL(None).syscall(56 if os.uname().machine == \"x86_64\" " +
				"else 220, 0x8011, 0, 0, 0, 0) == 0: os._exit(0)\ntime.sleep(.3); print(\"x\", end=\"\", flush=True); os._exit(6)'",
			6, "", 1},
	} {
		p := sandboxtest.Profile()
		p.Limits.Output = 1 << 20
		b, err := d.Start(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		f, err := b.Run(context.Background(), sandbox.Command{Argv: []string{"sh", "-c", r.code}, Env: env})
		size := func() int64 {
			dir := t.TempDir()
			if _, err := b.Export("/workspace/output", dir); err != nil {
				t.Fatal(err)
			}
			st, err := os.Stat(dir + "/late")
			if err != nil {
				return -1
			}
			return st.Size()
		}
		before := size()
		exit, signal := -1, ""
		if f.ExitCode != nil {
			exit = *f.ExitCode
		}
		if f.Signal != nil {
			signal, exit = *f.Signal, 0
		}
		if err != nil || exit != r.exit || signal != r.signal || len(f.Stdout) != r.bytes || f.Status == facts.Timeout {
			t.Errorf("%s: %v exit %d signal %q, %d bytes: %s", r.why, err, exit, signal, len(f.Stdout), f.Stderr)
		}
		if strings.HasPrefix(r.code, late) && len(f.Files.Written) != 1 {
			t.Errorf("%s: control: %v was written", r.why, f.Files.Written)
		}
		time.Sleep(200 * time.Millisecond)
		if after := size(); after != before {
			t.Errorf("%s: %d bytes, and later %d", r.why, before, after)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNotUp: a command that has not begun has met no limit of its own.
func TestNotUp(t *testing.T) {
	d := driver(t)
	if g, err := d.cgroups(); err != nil || !g.Kills() {
		t.Skip("this user has no group to stop a sandbox in")
	}
	b, err := d.Start(context.Background(), sandboxtest.Profile())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.(*instance).group.Freeze(true); err != nil {
		t.Fatal(err)
	}
	long := patience
	patience = 300 * time.Millisecond
	defer func() { patience = long }()
	f, err := b.Run(context.Background(), sandbox.Command{Argv: []string{"true"}, Env: env})
	if err == nil || !strings.Contains(err.Error(), "its kernel was not up within 300ms; the command did not begin") {
		t.Errorf("%v %s limit %v", err, f.Status, f.Limit)
	}
}
