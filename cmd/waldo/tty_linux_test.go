package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/testing/terminaltest"
)

// onTTY runs waldo with a terminal, as a person sees it.
func onTTY(t *testing.T, args ...string) (person, program *os.File, seen *terminaltest.Seen, cmd *exec.Cmd) {
	t.Helper()
	person, program = terminaltest.Pair(t)
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
	seen = &terminaltest.Seen{}
	go seen.Read(person)
	return person, program, seen, cmd
}

// TestTTY: a command has a terminal of its own, of the window's size, with job control; nothing can be put into the
// person's; Ctrl-C is the command's, and the person's terminal is as it was however the command ends.
func TestTTY(t *testing.T) {
	for _, end := range []string{"exit", "SIGTERM", "SIGHUP"} {
		person, program, seen, cmd := onTTY(t, "exec", "-t", "--", "sh", "-i")
		terminaltest.Until(t, "raw mode", seen, func() bool { return !terminaltest.Echoes(t, program) })
		type_ := func(line string) { _, _ = person.WriteString(line + "\r") }
		type_("stty size; echo T=$TERM; test -t 0 && test -t 2 && echo is-a-$((40+2))-terminal")
		terminaltest.Until(t, "the size", seen, func() bool {
			return seen.Has("33 77") && seen.Has("T=vt100") && seen.Has("is-a-42-terminal")
		})
		if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 11, Col: 99}); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Process.Signal(syscall.SIGWINCH)
		terminaltest.Until(t, "another size", seen, func() bool {
			type_("stty size")
			time.Sleep(300 * time.Millisecond)
			return seen.Has("11 99")
		})
		type_("python3 -c \"exec('import fcntl\\\\ntry: fcntl.ioctl(0,0x5412,b\\\\'x\\\\')\\\\nexcept OSError as e: " +
			"print(1000+e.errno)')\"")
		terminaltest.Until(t, "TIOCSTI is refused", seen, func() bool { return seen.Has("1001") })
		type_("sleep 1000; echo after-$((1+1))-sleep")
		time.Sleep(500 * time.Millisecond)
		_, _ = person.WriteString("\x03") // Ctrl-C ends the sleep, not waldo
		terminaltest.Until(t, "a prompt after Ctrl-C", seen, func() bool {
			type_("echo still-$((2+3))")
			time.Sleep(200 * time.Millisecond)
			return seen.Has("still-5")
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
		if !terminaltest.Echoes(t, program) {
			t.Errorf("%s: the person's terminal is not as it was", end)
		}
	}
}
