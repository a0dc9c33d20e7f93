package web

import (
	"net"
	"sync"
)

// limit holds a listener to so many connections at once. One more waits in the kernel's queue.
func limit(l net.Listener, most int) net.Listener {
	return &limited{Listener: l, free: make(chan struct{}, most), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	free   chan struct{}
	once   sync.Once
	closed chan struct{}
}

// Accept satisfies net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &counted{Conn: c, gone: sync.OnceFunc(func() { <-l.free })}, nil
}

// Close satisfies net.Listener.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type counted struct {
	net.Conn
	gone func()
}

// Close satisfies net.Conn.
func (c *counted) Close() error {
	defer c.gone()
	return c.Conn.Close()
}
