package loopback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// serve answers each connection with a word.
func serve(t *testing.T, l net.Listener, word string) {
	t.Helper()
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, word)
			_ = c.Close()
		}
	}()
}

// heard returns what answers at an address.
func heard(t *testing.T, host string, port int) string {
	t.Helper()
	c, err := net.Dial("tcp", net.JoinHostPort(host, fmt.Sprint(port)))
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	b, _ := io.ReadAll(c)
	return string(b)
}

// freely binds like a stranger who may also take an address that is not there.
func freely(network, at string) (net.Listener, error) {
	if at[0] != '[' {
		return net.Listen(network, at)
	}
	return (&net.ListenConfig{Control: early}).Listen(context.Background(), network, at)
}

// TestListen: whoever asks localhost for waldo's port gets waldo at both addresses. Nobody else gets the port at either
// while it listens, and waldo does not start where somebody has it.
func TestListen(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", "localhost:0", "0.0.0.0:0", "[::]:0", ":0"} {
		l, err := Listen(at)
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		serve(t, l, "waldo")
		port := l.Addr().(*net.TCPAddr).Port
		for _, host := range []string{"127.0.0.1", "::1", "localhost"} {
			if got := heard(t, host, port); got != "waldo" {
				t.Errorf("%s: %s answers %q", at, host, got)
			}
		}
		for _, there := range []string{"[::1]", "127.0.0.1", "0.0.0.0", "[::]"} {
			other, err := freely("tcp", fmt.Sprint(there, ":", port))
			if !errors.Is(err, unix.EADDRINUSE) {
				t.Errorf("%s: a stranger's %s: %v %v", at, there, other, err)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after its end: %v", err)
		}
		after, err := Listen(fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			t.Fatalf("control: the port is not free afterwards: %v", err)
		}
		_ = after.Close()
	}
	alone, err := net.Listen("tcp4", "127.0.0.1:0") // control: as it was
	if err != nil {
		t.Fatal(err)
	}
	serve(t, alone, "waldo")
	port := alone.Addr().(*net.TCPAddr).Port
	stranger, err := net.Listen("tcp6", fmt.Sprint("[::1]:", port))
	if err != nil {
		t.Fatal(err)
	}
	serve(t, stranger, "stranger")
	if got := heard(t, "::1", port); got != "stranger" {
		t.Errorf("control: %q", got)
	}
	_ = alone.Close()
	for _, at := range []string{"127.0.0.1", "[::1]", "localhost", "0.0.0.0"} {
		if l, err := Listen(fmt.Sprint(at, ":", port)); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("%s: waldo listens beside a stranger: %v %v", at, l, err)
		}
	}
	again, err := net.Listen("tcp4", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		t.Fatalf("a refusal keeps the other address: %v", err)
	}
	_ = again.Close()
}

// TestOurs: a port where another waldo process listens is known as waldo's until that process ends. The control is a port
// of another program, which begins with the same digits.
func TestOurs(t *testing.T) {
	if os.Getenv("WALDO_TEST_LISTEN") != "" {
		l, err := Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(l.Addr().(*net.TCPAddr).Port)
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // without Close
	}
	c := exec.Command(os.Args[0], "-test.run=^TestOurs$")
	c.Env = append(os.Environ(), "WALDO_TEST_LISTEN=1")
	end, err := c.StdinPipe()
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
	var port uint16
	if _, err := fmt.Fscan(out, &port); err != nil || !Ours(port) || Ours(port/10) {
		t.Errorf("port %d: %v, %t, control %t", port, err, Ours(port), Ours(port/10))
	}
	_ = end.Close()
	if err := c.Wait(); err != nil || Ours(port) {
		t.Errorf("after its end: %v, %t", err, Ours(port))
	}
}

// TestWithoutIPv6: in a network without IPv6, waldo has ::1 before anybody, and keeps it when IPv6 is switched on.
func TestWithoutIPv6(t *testing.T) {
	if os.Getenv("WALDO_TEST_NETWORK") == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestWithoutIPv6$", "-test.v")
		c.Env = append(os.Environ(), "WALDO_TEST_NETWORK=1")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
		out, err := c.CombinedOutput()
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
			t.Skip("no user namespaces here: ", err)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	up(t)
	six := func(off string) {
		t.Helper()
		for _, name := range []string{"all", "lo"} {
			if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", name, "disable_ipv6"), []byte(off), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	six("1")
	if _, err := net.Listen("tcp6", "[::1]:0"); !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Fatalf("control: this network has IPv6: %v", err)
	}
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, "waldo")
	port := l.Addr().(*net.TCPAddr).Port
	if got := heard(t, "127.0.0.1", port); got != "waldo" {
		t.Errorf("127.0.0.1: %q", got)
	}
	if other, err := freely("tcp6", fmt.Sprint("[::1]:", port)); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a stranger's ::1: %v %v", other, err)
	}
	if _, err := freely("tcp6", "[::1]:0"); err != nil {
		t.Errorf("control: a stranger can bind before the address is there: %v", err)
	}
	six("0")
	if got := heard(t, "::1", port); got != "waldo" {
		t.Errorf("::1, switched on: %q", got)
	}
}

// up brings the loopback of a new network up.
func up(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	r.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r); err != nil {
		t.Fatal(err)
	}
}

// TestNobody: only a kernel without IPv6 excuses the absence of ::1.
func TestNobody(t *testing.T) {
	for err, want := range map[error]bool{unix.EAFNOSUPPORT: true, unix.EADDRNOTAVAIL: false, unix.EADDRINUSE: false,
		unix.EACCES: false, unix.ENOPROTOOPT: false} {
		if nobody(&net.OpError{Err: os.NewSyscallError("bind", err)}) != want {
			t.Error(err)
		}
	}
}
