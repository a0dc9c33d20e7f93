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

// take takes the pipe of the sandbox and returns after its last use. The sandbox closes it.
func (s *pipe) take(end any) (int64, error) {
	f, ok := end.(*os.File)
	if !ok {
		s.close()
		return 0, errNoPipe
	}
	s.file = f
	close(s.made)
	<-s.closed
	return 0, nil
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

// toServer is the standard input of a server: io.Copy hands it the pipe.
type toServer struct{ *pipe }

// WriteTo satisfies io.WriterTo.
func (s toServer) WriteTo(w io.Writer) (int64, error) { return s.take(w) }

// Read satisfies io.Reader. A sandbox that calls it does not use WriteTo.
func (s toServer) Read([]byte) (int, error) { return 0, errNoPipe }

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

// fromServer is the standard output of a server: the sandbox hands it the pipe.
type fromServer struct{ *pipe }

// ReadFrom satisfies io.ReaderFrom.
func (s fromServer) ReadFrom(r io.Reader) (int64, error) { return s.take(r) }

// Write satisfies io.Writer: output after the last read is lost.
func (s fromServer) Write([]byte) (int, error) { return 0, errNoPipe }

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
