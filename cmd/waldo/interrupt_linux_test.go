package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"waldo/internal/testing/terminaltest"
)

// TestPromptInterrupted interrupts waldo itself at the prompts for a passphrase and for a secret.
func TestPromptInterrupted(t *testing.T) {
	for _, row := range []struct {
		why  string
		args []string
		end  func(person *os.File, p *os.Process)
		rc   int
	}{
		{"Ctrl-C at a passphrase", []string{"approve", "--enroll", "ann"},
			func(person *os.File, _ *os.Process) { _, _ = person.WriteString("\x03") }, 130},
		{"SIGTERM at a passphrase", []string{"approve", "--enroll", "ann"},
			func(_ *os.File, p *os.Process) { _ = p.Signal(syscall.SIGTERM) }, 130},
		{"Ctrl-C at a secret", []string{"secret", "set", "token"},
			func(person *os.File, _ *os.Process) { _, _ = person.WriteString("\x03") }, 130},
		{"control: a line at a secret", []string{"secret", "set", "token"},
			func(person *os.File, _ *os.Process) { _, _ = person.WriteString("value\n") }, 0},
	} {
		person, program := terminaltest.Pair(t)
		waldo := exec.Command("waldo", row.args...) // testscript puts it on PATH
		waldo.Env = append(os.Environ(), "WALDO_STATE="+t.TempDir()+"/state", "HOME="+t.TempDir())
		waldo.Stdin, waldo.Stdout, waldo.Stderr = program, program, program
		waldo.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := waldo.Start(); err != nil {
			t.Fatal(err)
		}
		var screen bytes.Buffer
		for b := make([]byte, 4096); !strings.HasSuffix(strings.TrimRight(screen.String(), " "), ":"); {
			n, err := person.Read(b)
			if err != nil {
				t.Fatalf("%s: no prompt: %v, %q", row.why, err, screen.String())
			}
			screen.Write(b[:n])
		}
		if terminaltest.Echoes(t, program) {
			t.Errorf("%s: the terminal echoes at the prompt", row.why)
		}
		start := time.Now()
		row.end(person, waldo.Process)
		_ = waldo.Wait() // the exit code says how it ended
		if took, rc := time.Since(start), waldo.ProcessState.ExitCode(); rc != row.rc || row.rc != 0 &&
			took > 200*time.Millisecond || !terminaltest.Echoes(t, program) {
			t.Errorf("%s: exit %d after %v, echo after it %v", row.why, rc, took, terminaltest.Echoes(t, program))
		}
	}
}
