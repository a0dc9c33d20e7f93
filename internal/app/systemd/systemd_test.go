//go:build linux

package systemd

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain: with PASSED set, this process is the service that sockets are passed to.
func TestMain(m *testing.M) {
	if as := os.Getenv("PASSED"); as != "" {
		if as == "own" { // systemd names the process after it has forked it
			_ = os.Setenv("LISTEN_PID", fmt.Sprint(os.Getpid()))
		}
		os.Exit(service())
	}
	os.Exit(m.Run())
}

// service prints what it was passed, and answers one connection.
func service() int {
	all, err := Listeners()
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	fmt.Println("passed", len(all), "left", os.Getenv("LISTEN_PID")+os.Getenv("LISTEN_FDS")+os.Getenv("LISTEN_FDNAMES"))
	for fd := 3; fd < 3+2*len(all); fd++ { // what was passed, and what this process made of it
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			fmt.Println("descriptor", fd, "would be inherited")
		}
	}
	for _, l := range all {
		c, err := l.Accept()
		if err != nil {
			fmt.Println("error:", err)
			return 1
		}
		_, _ = io.WriteString(c, "hello")
		_ = c.Close()
	}
	return 0
}

func TestListeners(t *testing.T) {
	for _, row := range []struct {
		name, as, fds, want string
		socket              string // what is passed: tcp, unix or file
	}{
		{name: "a socket", as: "own", fds: "1", want: "passed 1 left \n", socket: "tcp"},
		{name: "for another process", as: "other", fds: "1", want: "passed 0 left \n", socket: "tcp"},
		{name: "no number", as: "own", fds: "x", want: "error: LISTEN_FDS is \"x\": expected a number from 0 to 16\n", socket: "tcp"},
		{name: "below none", as: "own", fds: "-1", want: "error: LISTEN_FDS is \"-1\": expected a number from 0 to 16\n", socket: "tcp"},
		{name: "a socket of files", as: "own", fds: "1", want: "error: socket 3 that systemd passed: unix is no socket of TCP\n", socket: "unix"},
		{name: "no socket", as: "own", fds: "1", want: "error: socket 3 that systemd passed: ", socket: "file"},
		{name: "one that is not there", as: "own", fds: "2", want: "error: socket 4 that systemd passed: ", socket: "tcp"},
	} {
		t.Run(row.name, func(t *testing.T) {
			file, address := passed(t, row.socket)
			c := exec.Command("/proc/self/exe")
			c.Env = []string{"PASSED=" + row.as, "LISTEN_PID=1", "LISTEN_FDS=" + row.fds, "LISTEN_FDNAMES=waldo"}
			c.ExtraFiles = []*os.File{file}
			if strings.HasPrefix(row.want, "passed 1") {
				go func() { // waits in the queue of the socket until the service accepts it
					if c, err := net.Dial("tcp", address); err == nil {
						_, _ = io.Copy(io.Discard, c)
						_ = c.Close()
					}
				}()
			}
			out, _ := c.Output()
			if got := string(out); !strings.HasPrefix(got, row.want) || strings.Contains(got, "inherited") {
				t.Errorf("it says %q, want %q", got, row.want)
			}
		})
	}
}

func passed(t *testing.T, kind string) (file *os.File, address string) {
	t.Helper()
	var err error
	switch kind {
	case "tcp":
		l, lerr := net.Listen("tcp", "127.0.0.1:0")
		if lerr != nil {
			t.Fatal(lerr)
		}
		t.Cleanup(func() { _ = l.Close() })
		address = l.Addr().String()
		file, err = l.(*net.TCPListener).File()
	case "unix":
		l, lerr := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unix"})
		if lerr != nil {
			t.Fatal(lerr)
		}
		t.Cleanup(func() { _ = l.Close() })
		file, err = l.File()
	default:
		file, err = os.Open("/dev/null")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file, address
}

func TestNotify(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Notify("READY=1"); err != nil {
		t.Errorf("without a manager: %v", err)
	}
	at := t.TempDir() + "/notify"
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", at)
	if err := Notify("READY=1"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	n, err := l.Read(b)
	if err != nil || string(b[:n]) != "READY=1" {
		t.Errorf("the manager got %q, %v", b[:n], err)
	}
}
