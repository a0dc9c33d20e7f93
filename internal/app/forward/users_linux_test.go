package forward

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"waldo/internal/network/loopback"
)

// TestOtherUsers: a port of a sandbox answers programs of its user, and those of another user not at all.
func TestOtherUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("another user's program is started by root")
	}
	inside, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	go func() {
		for {
			c, err := inside.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("hello\n"))
			c.Close()
		}
	}()
	f := &Port{port: 7, dial: func(context.Context, uint16) (net.Conn, error) {
		return net.Dial("tcp4", inside.Addr().String())
	}}
	listeners, err := f.Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	go f.Accept(t.Context(), listeners)
	forwarded := listeners[0].Addr()
	ask := func(to net.Addr, uid uint32) string {
		c := exec.Command("bash", "-c", `exec 3<>/dev/tcp/127.0.0.1/$0 && head -n 1 <&3`, strconv.Itoa(to.(*net.TCPAddr).Port))
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, _ := c.Output() // a closed connection is an empty answer
		return string(out)
	}
	if got := ask(inside.Addr(), 65533); got != "hello\n" {
		t.Fatalf("control: another user without waldo: %q", got)
	}
	if got := ask(forwarded, 0); got != "hello\n" {
		t.Errorf("its user: %q", got)
	}
	if got := ask(forwarded, 65533); got != "" {
		t.Errorf("another user: %q", got)
	}
}

// TestOurs: a forward's port is known as waldo's while it listens: no other sandbox reaches it as localhost.
func TestOurs(t *testing.T) {
	all, err := (&Port{port: 7}).Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	port := uint16(all[0].Addr().(*net.TCPAddr).Port)
	if !loopback.Ours(port) {
		t.Error("a sandbox reaches it")
	}
	for _, l := range all {
		_ = l.Close()
	}
	if loopback.Ours(port) {
		t.Error("control: it is known as waldo's after its end")
	}
}
