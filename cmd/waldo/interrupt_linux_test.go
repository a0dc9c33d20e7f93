package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

// TestSignalledAgain: more signals do not keep waldo from taking out what a run has planted. The next command takes out
// what a killed waldo leaves, whichever it is.
func TestSignalledAgain(t *testing.T) {
	for _, kill := range []bool{false, true} {
		dir, state := t.TempDir(), t.TempDir()
		for i := range 4000 { // the end takes a while
			if err := os.MkdirAll(filepath.Join(dir, "many", strconv.Itoa(i)), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		waldo := exec.Command("waldo", "exec", "--mount", dir+":rw", "--", "sh", "-c",
			"cd "+dir+" && mkdir .zed && echo x > .zed/tasks.json && echo ready && sleep 1000")
		waldo.Env = append(os.Environ(), "WALDO_STATE="+state, "HOME="+t.TempDir())
		var said bytes.Buffer
		waldo.Stderr = &said
		if err := waldo.Start(); err != nil {
			t.Fatal(err)
		}
		planted := filepath.Join(dir, ".zed/tasks.json")
		for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(planted); err == nil {
				break
			} else if time.Since(began) > time.Minute {
				t.Fatal("nothing was planted")
			}
		}
		over := make(chan struct{})
		go func() { _ = waldo.Wait(); close(over) }()
		signals := []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGHUP, syscall.SIGQUIT}
		if kill {
			signals = []os.Signal{os.Kill}
		}
		for i, ended := 0, false; !ended; i++ {
			_ = waldo.Process.Signal(signals[i%len(signals)])
			select {
			case <-over:
				ended = true
			case <-time.After(2 * time.Millisecond):
			}
		}
		if _, err := os.Stat(planted); (err == nil) != kill { // killed: the control
			t.Errorf("killed %v: %v: %s", kill, err, said.String())
		}
		if n := strings.Count(said.String(), "cleaning up: "); n > 1 || n == 0 && !kill {
			t.Errorf("killed %v: cleaning up was written %d times: %s", kill, n, said.String())
		}
		next := exec.Command("waldo", "log")
		next.Env = waldo.Env
		out, err := next.CombinedOutput()
		if err != nil || strings.Contains(string(out), "had planted a protected name") != kill {
			t.Errorf("killed %v: %v: %s", kill, err, out)
		}
		if _, err := os.Stat(planted); err == nil {
			t.Errorf("killed %v: %s is still there after waldo log", kill, planted)
		}
	}
}
