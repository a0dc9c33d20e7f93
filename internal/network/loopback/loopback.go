// Package loopback listens where the name localhost leads.
package loopback

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
)

// Both are the two addresses of localhost. Browsers try the second one first.
var both = []string{"127.0.0.1", "::1"}

// Is reports whether a host is localhost or one of its two addresses.
func Is(host string) bool { return host == "localhost" || host == both[0] || host == both[1] }

// Reached reports whether localhost leads to a listener's address.
func Reached(at net.Addr) bool {
	tcp, ok := at.(*net.TCPAddr)
	return ok && (tcp.IP.IsLoopback() || tcp.IP.IsUnspecified())
}

// tries is how often a port is looked for that is free at both addresses.
const tries = 20

// Listen listens on an address, and marks the port as waldo's. Where localhost leads to it, waldo holds the port at both
// addresses of localhost: no other user of the machine can answer at the other one. It fails if it cannot have both.
func Listen(at string) (net.Listener, error) {
	l, err := listen(at)
	if err != nil {
		return nil, err
	}
	return Mark(l)
}

func listen(at string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		return nil, err
	}
	if !Is(host) {
		l, err := net.Listen("tcp", at)
		if err != nil || !Reached(l.Addr()) || l.Addr().(*net.TCPAddr).IP.To4() == nil {
			return l, err // the address of all IPv6 interfaces is that of all IPv4 interfaces, too
		}
		return beside(l)
	}
	for n := 1; ; n++ {
		l, err := net.Listen("tcp4", net.JoinHostPort(both[0], port))
		if err != nil {
			return nil, err
		}
		pair, err := beside(l)
		if err == nil || l.Addr().(*net.TCPAddr).Port == number(port) || n == tries {
			return pair, err
		}
	}
}

// Given listens on sockets that another program opened, of one port. It adds ::1 where localhost leads to them and it is
// not among them, as Listen does.
func Given(all []net.Listener) (net.Listener, error) {
	four, six := all[0], false
	for _, l := range all {
		at, ok := l.Addr().(*net.TCPAddr)
		if !ok || at.Port != all[0].Addr().(*net.TCPAddr).Port {
			return nil, fmt.Errorf("%s and %s: expected TCP addresses of one port", all[0].Addr(), l.Addr())
		}
		if Reached(at) && at.IP.To4() != nil {
			four = l
		}
		six = six || Reached(at) && at.IP.To4() == nil
	}
	if at := four.Addr(); !six && Reached(at) {
		pair, err := beside(four)
		if err != nil {
			return nil, err
		}
		all = append(slices.DeleteFunc(slices.Clone(all), func(l net.Listener) bool { return l == four }), pair)
	}
	if len(all) == 1 {
		return Mark(all[0])
	}
	return Mark(join(all...))
}

// number returns the port of a text; 0: the kernel chooses one.
func number(port string) int {
	n, _ := net.LookupPort("tcp", port) // a listener has it already
	return n
}

// beside adds the same port of ::1 to a listener for IPv4. It closes the listener if that fails.
func beside(l net.Listener) (net.Listener, error) {
	at := net.JoinHostPort(both[1], fmt.Sprint(l.Addr().(*net.TCPAddr).Port))
	six, err := (&net.ListenConfig{Control: early}).Listen(context.Background(), "tcp6", at)
	switch {
	case err == nil:
		return join(l, six), nil
	case nobody(err):
		return l, nil
	}
	return nil, errors.Join(fmt.Errorf("localhost leads to %s and to %s, and waldo needs both: %w", l.Addr(), at, err),
		l.Close())
}

// joined accepts the connections of several listeners.
type joined struct {
	all  []net.Listener
	got  chan accepted
	over chan struct{}
	end  func() error
}

type accepted struct {
	conn net.Conn
	err  error
}

func join(all ...net.Listener) *joined {
	j := &joined{all: all, got: make(chan accepted), over: make(chan struct{})}
	j.end = sync.OnceValue(func() (err error) {
		close(j.over)
		for _, l := range j.all {
			err = errors.Join(err, l.Close())
		}
		return err
	})
	for _, l := range all {
		go j.accept(l)
	}
	return j
}

func (j *joined) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		select {
		case j.got <- accepted{conn, err}:
		case <-j.over:
			if conn != nil {
				_ = conn.Close()
			}
			return
		}
	}
}

// Accept satisfies net.Listener.
func (j *joined) Accept() (net.Conn, error) {
	select {
	case a := <-j.got:
		return a.conn, a.err
	case <-j.over:
		return nil, net.ErrClosed
	}
}

// Close satisfies net.Listener.
func (j *joined) Close() error { return j.end() }

// Addr satisfies net.Listener. It is the address of the first one.
func (j *joined) Addr() net.Addr { return j.all[0].Addr() }
