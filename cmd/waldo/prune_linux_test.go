package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"waldo/internal/app"
	"waldo/internal/app/trust"
	"waldo/internal/cli/exitcode"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/model/secret"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/storage/database"
	"waldo/internal/testing/terminaltest"
)

// TestPruneAsksTheFirstApprover: waldo prune at a terminal asks for the passphrase, and a wrong one removes nothing.
func TestPruneAsksTheFirstApprover(t *testing.T) {
	dir := t.TempDir()
	state, config := filepath.Join(dir, "state"), filepath.Join(dir, "waldo.yaml")
	s, err := database.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Add(-200 * 24 * time.Hour)
	o := app.LogOptions(s)
	o.SegmentAge, o.Now = 9*24*time.Hour, func() time.Time { return now }
	l, err := audit.Open(t.Context(), s.Path("log"), o)
	if err != nil {
		t.Fatal(err)
	}
	text := []byte("log: {keep: 90d}\n")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	r := trust.Record{Digest: strictjson.Digest(text), Lock: trust.NoLock}
	if err := trust.Write(state, map[string]trust.Record{config: r}); err != nil {
		t.Fatal(err)
	}
	signs, err := app.TrustedNow(state)
	if err != nil {
		t.Fatal(err)
	}
	k := &approval.Service{Store: s, Records: audit.Desk{Recorder: &audit.Recorder{Log: l}, User: app.Principal()}, Witness: &audit.Witness{Dir: audit.Dir(state)}}
	ann, err := k.Enroll(t.Context(), "ann", nil, secret.NewValue("correct horse battery"), nil, signs...)
	if err != nil {
		t.Fatal(err)
	}
	for range 199 {
		now = now.Add(24 * time.Hour)
		if _, err := l.Append(t.Context(), "day", []byte(`{}`), true); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv(app.RootVariable, ann.Fingerprint())
	for _, row := range []struct {
		typed []string // each at its own prompt
		rc    int
	}{
		{[]string{"wrong horse battery\n", "\n", "wrong horse battery\n"}, exitcode.Waiting},
		{[]string{"wrong horse battery\n", "correct horse battery\n"}, 0},
	} {
		person, program := terminaltest.Pair(t)
		waldo := exec.Command("waldo", "--state", state, "--config", config, "prune") // testscript puts it on PATH
		var out bytes.Buffer
		waldo.Stdin, waldo.Stderr, waldo.Stdout = program, program, &out
		waldo.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := waldo.Start(); err != nil {
			t.Fatal(err)
		}
		var screen bytes.Buffer
		for i, line := range row.typed {
			for b := make([]byte, 4096); strings.Count(screen.String(), "passphrase of ann:") <= i; {
				n, err := person.Read(b)
				if err != nil {
					t.Fatalf("no prompt: %v, %q", err, screen.String())
				}
				screen.Write(b[:n])
			}
			if terminaltest.Echoes(t, program) || !strings.Contains(screen.String(), "Unused approvals become void") {
				t.Errorf("the prompt: %q", screen.String())
			}
			if _, err := person.WriteString(line); err != nil {
				t.Fatal(err)
			}
		}
		_ = waldo.Wait() // the exit code says how it ended
		if rc := waldo.ProcessState.ExitCode(); rc != row.rc || rc == 0 && !strings.Contains(out.String(), "removed ") {
			t.Errorf("%q: exit %d, %s", row.typed, rc, out.String())
		}
		var said bytes.Buffer
		run([]string{"--state", state, "log", "verify"}, strings.NewReader(""), &said, &said)
		if pruned := strings.Contains(said.String(), "were pruned at"); pruned != (row.rc == 0) {
			t.Errorf("%q: pruned %v: %s", row.typed, pruned, said.String())
		}
	}
}

// TestRestoreAsksAgain: a wrong passphrase of a backup is asked again, and what was typed before a prompt is none.
func TestRestoreAsksAgain(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "first.backup")
	t.Setenv("WALDO_BACKUP_PASSPHRASE", "correct horse battery")
	var said bytes.Buffer
	if rc := run([]string{"--state", filepath.Join(dir, "state"), "backup", file}, strings.NewReader(""), &said, &said); rc != 0 {
		t.Fatal(said.String())
	}
	t.Setenv("WALDO_BACKUP_PASSPHRASE", "")
	person, _, seen, waldo := onTTY(t, "--state", filepath.Join(dir, "restored"), "restore", file)
	for i, line := range []string{"wrong\rtyped ahead\r", "correct horse battery\r"} {
		terminaltest.Until(t, "the prompt", seen, func() bool { return strings.Count(seen.Text(), "passphrase of") > 2*i })
		if _, err := person.WriteString(line); err != nil {
			t.Fatal(err)
		}
	}
	if err := waldo.Wait(); err != nil {
		t.Errorf("%v: %s", err, seen.Text())
	}
}
