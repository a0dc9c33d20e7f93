package job

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/ready"
)

// Conn is one end of the socket.
type Conn struct {
	c  *net.UnixConn
	fd int
}

// Pair returns both ends: ours, and a file to give to the other process.
func Pair() (*Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket pair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "sandbox")
	c, err := Open(os.NewFile(uintptr(fds[0]), "waldo"))
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return c, theirs, nil
}

// Open makes a Conn of a descriptor, which it closes.
func Open(f *os.File) (*Conn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("descriptor %s: %w", f.Name(), err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, fmt.Errorf("descriptor %s is not a Unix socket", f.Name())
	}
	conn := &Conn{c: u, fd: -1}
	raw, err := u.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { conn.fd = int(fd) })
	}
	if err != nil {
		_ = u.Close()
		return nil, err
	}
	return conn, nil
}

// Close closes our end.
func (c *Conn) Close() error { return c.c.Close() }

// Send writes one message and the descriptors that go with it.
func (c *Conn) Send(v any, files ...*os.File) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	n, _, err := c.c.WriteMsgUnix(b, rights, nil) // the descriptors arrive with the first bytes
	if err != nil || n == len(b) {
		return err
	}
	_, err = c.c.Write(b[n:])
	return err
}

// Receive reads one message and the descriptors that came with it, which belong to the caller.
// It returns io.EOF when the other end is closed.
func (c *Conn) Receive(v any) ([]*os.File, error) {
	var head [4]byte
	oob := make([]byte, unix.CmsgSpace(4*maxFDs))
	n, oobn, flags, _, err := c.c.ReadMsgUnix(head[:], oob)
	if n == 0 && (err == nil || errors.Is(err, io.EOF)) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, err
	}
	files, err := received(oob[:oobn])
	if err != nil {
		return nil, err
	}
	if flags&unix.MSG_CTRUNC != 0 {
		closeAll(files)
		return nil, errors.New("more descriptors than a message may carry")
	}
	if err := c.body(head[:], n, v); err != nil {
		closeAll(files)
		return nil, err
	}
	return files, nil
}

func (c *Conn) body(head []byte, n int, v any) error {
	if _, err := io.ReadFull(c.c, head[n:]); err != nil {
		return err
	}
	size := binary.LittleEndian.Uint32(head)
	if size > maxFrame {
		return fmt.Errorf("a message of %d bytes is longer than %d", size, maxFrame)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(c.c, b); err != nil {
		return err
	}
	return decode(b, v)
}

func received(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// SetDeadline bounds the messages that come after; the zero time bounds none.
func (c *Conn) SetDeadline(t time.Time) { _ = c.c.SetDeadline(t) }

// SetReadDeadline bounds the messages that are read after; the zero time bounds none.
func (c *Conn) SetReadDeadline(t time.Time) { _ = c.c.SetReadDeadline(t) }

// Said reports whether the other end has said something that was not read, or is gone.
func (c *Conn) Said() bool {
	n, err := ready.Now(unix.PollFd{Fd: int32(c.fd), Events: unix.POLLIN})
	return n != 0 || err != nil
}

// FD is the descriptor of this end. It is readable when a message of the other end has arrived.
func (c *Conn) FD() int { return c.fd }
