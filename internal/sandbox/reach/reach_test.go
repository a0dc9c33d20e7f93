//go:build linux && (amd64 || arm64)

package reach_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/sandbox/reach"
	"waldo/internal/testing/sandboxtest"
)

// TestReachAsOrdinaryUser runs that test as a user without capabilities.
func TestReachAsOrdinaryUser(t *testing.T) { sandboxtest.AsOrdinaryUser(t, "TestReach") }

// served answers at port 7000 with a greeting. Before each answer it tries to reach a port of the host by every
// address that it has.
const served = `
import socket, sys
def tries(port):
    said = []
    for to in ("127.0.0.1", "127.0.0.2", "198.18.0.1"):
        s = socket.socket()
        s.settimeout(2)
        try:
            s.connect((to, port)); said.append("REACHED")
        except OSError as e:
            said.append(type(e).__name__)
        s.close()
    return said
l = socket.socket()
l.bind(("127.0.0.1", 7000)); l.listen()
six = socket.socket(socket.AF_INET6)
six.bind(("::1", 7006)); six.listen()
print("ready", flush=True)
while True:
    c, who = l.accept()
    c.sendall(("hello " + who[0] + " " + " ".join(tries(int(sys.argv[1]))) + "\n").encode())
    c.close()
`

// TestReach: waldo reaches a port of a sandbox's loopback, and that alone; the sandbox reaches nothing by it.
func TestReach(t *testing.T) {
	d := namespace.New(namespace.Options{})
	sb, err := d.Start(context.Background(), sandboxtest.Profile())
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	host, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	var reached atomic.Int64
	go func() {
		for {
			c, err := host.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			c.Close()
		}
	}()
	port := host.Addr().(*net.TCPAddr).Port
	if c, err := net.Dial("tcp4", host.Addr().String()); err != nil {
		t.Fatalf("control: the host's port: %v", err)
	} else {
		c.Close()
	}
	for end := time.Now().Add(10 * time.Second); reached.Load() == 0 &&
		time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	out, w := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = sb.Run(ctx, sandbox.Command{Argv: []string{"/usr/bin/python3", "-c", served, fmt.Sprint(port)},
			Env: []string{"PATH=/usr/bin:/bin"}, Stdout: w, Stderr: w})
		w.Close()
	}()
	defer func() { cancel(); <-ended }()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	r, err := d.Reach(sb.Abilities().PID())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c, err := r.Dial(7000)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(c)
		c.Close()
		if err != nil || !strings.HasPrefix(string(b), "hello 127.0.0.1 ") || strings.Contains(string(b), "REACHED") {
			t.Errorf("%q %v", b, err)
		}
	}
	if c, err := r.Dial(7006); err != nil {
		t.Errorf("a server at ::1: %v", err)
	} else {
		c.Close()
	}
	for _, other := range []int{7001, port} {
		if c, err := r.Dial(uint16(other)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("port %d: %v %v", other, c, err)
		}
	}
	if n := reached.Load(); n != 1 {
		t.Errorf("the host's port was reached %d times, by the control once", n)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := r.Dial(7000); err == nil {
		t.Error("what was closed reaches the sandbox")
	}
}

// TestReachRefusesTheHost: a process id that is in no sandbox, as one whose sandbox has just ended, is refused.
func TestReachRefusesTheHost(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = child.Process.Kill(), child.Wait() }()
	d := namespace.New(namespace.Options{})
	if r, err := d.Reach(os.Getpid()); !errors.Is(err, reach.ErrOwn) {
		t.Errorf("%v %v", r, err)
	}
	if r, err := d.Reach(1 << 22); err == nil {
		t.Errorf("a number that nobody has: %v", r)
	}
}
