package main

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
)

// straight is one end of a pipe of a server in a box. The box makes the pipe when the server starts,
// and from then on whoever talks to the server holds the pipe itself: no goroutine stands between that
// would have to be woken for each message. It is what the box is given to read from, or to write to.
type straight struct {
	made   chan struct{} // closed when the box has made the pipe
	pipe   *os.File
	closed chan struct{}
	close  func()
}

func newStraight() *straight {
	s := &straight{made: make(chan struct{}), closed: make(chan struct{})}
	s.close = sync.OnceFunc(func() { close(s.closed) })
	return s
}

var errNotThere = errors.New("the pipe is not there")

// have takes the pipe of the box and returns when it is no longer used. The box closes it.
func (s *straight) have(pipe any) (int64, error) {
	f, ok := pipe.(*os.File)
	if !ok {
		s.close()
		return 0, errNotThere
	}
	s.pipe = f
	close(s.made)
	<-s.closed
	return 0, nil
}

// wait returns the pipe once it is there.
func (s *straight) wait() (*os.File, error) {
	select {
	case <-s.closed:
		return nil, os.ErrClosed
	default:
	}
	select {
	case <-s.made:
		return s.pipe, nil
	case <-s.closed:
		return nil, os.ErrClosed
	}
}

// Close satisfies io.Closer. What the box has written and nobody has read is lost.
func (s *straight) Close() error {
	s.close()
	return nil
}

// toServer is the standard input of a server: io.Copy hands it the pipe.
type toServer struct{ *straight }

// WriteTo satisfies io.WriterTo.
func (s toServer) WriteTo(w io.Writer) (int64, error) { return s.have(w) }

// Read satisfies io.Reader. A box that reads from here does not know WriteTo.
func (s toServer) Read([]byte) (int, error) { return 0, errNotThere }

// Write satisfies io.Writer.
func (s toServer) Write(b []byte) (int, error) {
	f, err := s.wait()
	if err != nil {
		return 0, err
	}
	return f.Write(b)
}

// SyscallConn satisfies syscall.Conn.
func (s toServer) SyscallConn() (syscall.RawConn, error) {
	select {
	case <-s.made:
		return s.pipe.SyscallConn()
	default:
		return nil, errNotThere
	}
}

// fromServer is the standard output of a server: the box hands it the pipe.
type fromServer struct{ *straight }

// ReadFrom satisfies io.ReaderFrom.
func (s fromServer) ReadFrom(r io.Reader) (int64, error) { return s.have(r) }

// Write satisfies io.Writer: what comes when the pipe is no longer read is lost.
func (s fromServer) Write([]byte) (int, error) { return 0, errNotThere }

// Read satisfies io.Reader.
func (s fromServer) Read(b []byte) (int, error) {
	f, err := s.wait()
	if err != nil {
		return 0, io.EOF
	}
	n, err := f.Read(b)
	if err != nil {
		s.close()
		err = io.EOF // the server has ended, or its box has
	}
	return n, err
}
