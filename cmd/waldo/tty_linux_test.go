package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// screenOf gathers what a person sees.
type screenOf struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screenOf) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.b.String(), text)
}

// onTTY runs waldo with a terminal, as a person sees it.
func onTTY(t *testing.T, args ...string) (person, program *os.File, seen *screenOf, cmd *exec.Cmd) {
	t.Helper()
	person, program = pseudoTerminal(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self)
	cmd.Args = append([]string{"waldo"}, args...) // as TestMain knows it
	cmd.Env = append(os.Environ(), "WALDO_STATE="+t.TempDir(), "HOME="+t.TempDir(), "TERM=vt100")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 77}); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	seen = &screenOf{}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := person.Read(b)
			seen.mu.Lock()
			seen.b.Write(b[:n])
			seen.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return person, program, seen, cmd
}

func until(t *testing.T, why string, seen *screenOf, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			seen.mu.Lock()
			defer seen.mu.Unlock()
			t.Fatalf("%s; seen: %q", why, seen.b.String())
		}
	}
}

// TestTTY: a command has a terminal of its own, of the window's size, with job control; nothing can be put into the
// person's; Ctrl-C is the command's, and the person's terminal is as it was however the command ends.
func TestTTY(t *testing.T) {
	for _, end := range []string{"exit", "SIGTERM", "SIGHUP"} {
		person, program, seen, cmd := onTTY(t, "exec", "-t", "--", "sh", "-i")
		until(t, "raw mode", seen, func() bool { return !echoes(t, program) })
		type_ := func(line string) { _, _ = person.WriteString(line + "\r") }
		type_("stty size; echo T=$TERM; test -t 0 && test -t 2 && echo is-a-$((40+2))-terminal")
		until(t, "the size", seen, func() bool { return seen.has("33 77") && seen.has("T=vt100") && seen.has("is-a-42-terminal") })
		if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 11, Col: 99}); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Process.Signal(syscall.SIGWINCH)
		until(t, "another size", seen, func() bool { type_("stty size"); time.Sleep(300 * time.Millisecond); return seen.has("11 99") })
		type_("python3 -c \"exec('import fcntl\\\\ntry: fcntl.ioctl(0,0x5412,b\\\\'x\\\\')\\\\nexcept OSError as e: print(1000+e.errno)')\"")
		until(t, "TIOCSTI is refused", seen, func() bool { return seen.has("1001") })
		type_("sleep 1000; echo after-$((1+1))-sleep")
		time.Sleep(500 * time.Millisecond)
		_, _ = person.WriteString("\x03") // Ctrl-C ends the sleep, not waldo
		until(t, "a prompt after Ctrl-C", seen, func() bool {
			type_("echo still-$((2+3))")
			time.Sleep(200 * time.Millisecond)
			return seen.has("still-5")
		})
		switch end {
		case "exit":
			type_("exit 7")
		case "SIGTERM":
			_ = cmd.Process.Signal(syscall.SIGTERM)
		case "SIGHUP":
			_ = cmd.Process.Signal(syscall.SIGHUP)
		}
		done := make(chan struct{})
		go func() { _ = cmd.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: it does not end", end)
		}
		if end == "exit" && cmd.ProcessState.ExitCode() != 7 {
			t.Errorf("exit code %d", cmd.ProcessState.ExitCode())
		}
		if !echoes(t, program) {
			t.Errorf("%s: the person's terminal is not as it was", end)
		}
	}
}
