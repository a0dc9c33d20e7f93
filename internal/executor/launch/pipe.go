package launch

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
)

// pipe is one end of a server's standard input or output. The sandbox makes it at the server's start. waldo then
// reads or writes it directly, without a goroutine to wake for each message.
type pipe struct {
	made   chan struct{} // closed when the sandbox has made the pipe
	file   *os.File
	closed chan struct{}
	close  func()
}

func newPipe() *pipe {
	s := &pipe{made: make(chan struct{}), closed: make(chan struct{})}
	s.close = sync.OnceFunc(func() { close(s.closed) })
	return s
}

var errNoPipe = errors.New("the pipe does not exist yet")

// use gives the pipe to its reader or writer and returns after its last use (sandbox.Direct).
func (s *pipe) use(f *os.File) {
	s.file = f
	close(s.made)
	<-s.closed
}

// wait returns the pipe once it exists.
func (s *pipe) wait() (*os.File, error) {
	select {
	case <-s.closed:
		return nil, os.ErrClosed
	default:
	}
	select {
	case <-s.made:
		return s.file, nil
	case <-s.closed:
		return nil, os.ErrClosed
	}
}

// Close satisfies io.Closer. Output that was not read is lost.
func (s *pipe) Close() error {
	s.close()
	return nil
}

// toServer writes to the standard input of a server.
type toServer struct{ *pipe }

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
		return s.file.SyscallConn()
	default:
		return nil, errNoPipe
	}
}

// fromServer reads the standard output of a server.
type fromServer struct{ *pipe }

// Read satisfies io.Reader.
func (s fromServer) Read(b []byte) (int, error) {
	f, err := s.wait()
	if err != nil {
		return 0, io.EOF
	}
	n, err := f.Read(b)
	if err != nil {
		s.close()
		err = io.EOF // the server or its sandbox has ended
	}
	return n, err
}
