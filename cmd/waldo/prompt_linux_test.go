package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pseudoTerminal returns the two ends of a new terminal: the person's and the program's.
func pseudoTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("no pseudo-terminal: ", err)
	}
	person = os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { _ = person.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

func echoes(t *testing.T, f *os.File) bool {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return mode.Lflag&unix.ECHO != 0
}

// The prompt appears once echo is off; the terminal is as it was when the line, Ctrl-C or a signal has
// ended it.
func TestReadPassword(t *testing.T) {
	for _, row := range []struct{ why, typed, line string }{
		{"a line", "correct horse\n", "correct horse"},
		{"a line of a terminal that sends returns", "correct horse\r", "correct horse"},
		{"erased letters", "correctt\x7f hörr\x7fse\n", "correct hörse"},
		{"an erased letter of two bytes", "hö\x7forse\n", "horse"},
		{"an erased line", "wrong\x15right\n", "right"},
		{"more erased than was typed", "\x7f\x7fright\n", "right"},
		{"keys that are none", "ri\x1aght\n", "right"},
	} {
		person, program := pseudoTerminal(t)
		if !echoes(t, program) {
			t.Fatal("control: a new terminal echoes")
		}
		prompted := false
		line, err := readPassword(t.Context(), program, func() {
			prompted = true
			if echoes(t, program) {
				t.Errorf("%s: the terminal echoes while it is prompted", row.why)
			}
			if _, err := person.WriteString(row.typed + "next\n"); err != nil {
				t.Error(err)
			}
		})
		if string(line) != row.line || err != nil || !prompted || !echoes(t, program) {
			t.Errorf("%s: %q %v, prompted %v, echo after it %v", row.why, line, err, prompted, echoes(t, program))
		}
	}
	for why, end := range map[string]func(person *os.File, cancel func()){
		"Ctrl-C":   func(person *os.File, _ func()) { _, _ = person.WriteString("corr\x03") },
		"Ctrl-\\":  func(person *os.File, _ func()) { _, _ = person.WriteString("\x1c") },
		"a signal": func(_ *os.File, cancel func()) { cancel() },
	} {
		person, program := pseudoTerminal(t)
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		_, err := readPassword(ctx, program, func() { end(person, cancel) })
		if took := time.Since(start); !errors.Is(err, errInterrupted) || took > 200*time.Millisecond || !echoes(t, program) {
			t.Errorf("%s: %v after %v, echo after it %v", why, err, took, echoes(t, program))
		}
		cancel()
	}
}

// TestPromptInterrupted interrupts waldo itself at the prompts for a passphrase and for a secret.
func TestPromptInterrupted(t *testing.T) {
	for _, row := range []struct {
		why  string
		args []string
		end  func(person *os.File, p *os.Process)
		rc   int
	}{
		{"Ctrl-C at a passphrase", []string{"approve", "--enroll", "ann"}, func(person *os.File, _ *os.Process) { _, _ = person.WriteString("\x03") }, 130},
		{"SIGTERM at a passphrase", []string{"approve", "--enroll", "ann"}, func(_ *os.File, p *os.Process) { _ = p.Signal(syscall.SIGTERM) }, 130},
		{"Ctrl-C at a secret", []string{"secret", "set", "token"}, func(person *os.File, _ *os.Process) { _, _ = person.WriteString("\x03") }, 130},
		{"control: a line at a secret", []string{"secret", "set", "token"}, func(person *os.File, _ *os.Process) { _, _ = person.WriteString("value\n") }, 0},
	} {
		person, program := pseudoTerminal(t)
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
		if echoes(t, program) {
			t.Errorf("%s: the terminal echoes at the prompt", row.why)
		}
		start := time.Now()
		row.end(person, waldo.Process)
		_ = waldo.Wait() // the exit code says how it ended
		if took, rc := time.Since(start), waldo.ProcessState.ExitCode(); rc != row.rc || row.rc != 0 && took > 200*time.Millisecond || !echoes(t, program) {
			t.Errorf("%s: exit %d after %v, echo after it %v", row.why, rc, took, echoes(t, program))
		}
	}
}
