package loopback

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
)

// name begins the abstract socket (unix(7)) that marks that a waldo process listens on a TCP port of the same network.
// Every process of the machine can see it, whatever its state directory, and the kernel removes it with the process.
func name(port int) string { return fmt.Sprintf("@waldo/tcp/%d/", port) }

// marked is a listener with its mark.
type marked struct {
	net.Listener
	mark net.Conn
}

// Close satisfies net.Listener.
func (m marked) Close() error { return errors.Join(m.Listener.Close(), m.mark.Close()) }

// Mark makes the port of a listener known as waldo's until it closes, for Ours. It closes the listener if that fails.
func Mark(l net.Listener) (net.Listener, error) {
	at := net.UnixAddr{Net: "unixgram", Name: name(l.Addr().(*net.TCPAddr).Port) + rand.Text()}
	c, err := net.ListenUnixgram(at.Net, &at)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("marking %s as waldo's: %w", l.Addr(), err), l.Close())
	}
	return marked{l, c}, nil
}

// Ours reports whether a waldo process of this network listens on a TCP port. It reports true where that is unknown.
func Ours(port uint16) bool {
	all, err := os.ReadFile("/proc/self/net/unix")
	return err != nil || bytes.Contains(all, []byte(" "+name(int(port))))
}
