package runner

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/windows"

	"waldo/internal/model/id"
)

// socketpair makes the two ends of a pipe in both directions. Its name cannot be guessed, and it takes one client.
func socketpair() (ours, theirs *os.File, err error) {
	name, err := windows.UTF16PtrFromString(`\\.\pipe\waldo-` + id.New(id.Call))
	if err != nil {
		return nil, nil, err
	}
	const size = 64 << 10
	server, err := windows.CreateNamedPipe(name,
		windows.PIPE_ACCESS_DUPLEX|windows.FILE_FLAG_OVERLAPPED|windows.FILE_FLAG_FIRST_PIPE_INSTANCE,
		windows.PIPE_TYPE_BYTE|windows.PIPE_REJECT_REMOTE_CLIENTS, 1, size, size, 0, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("the bridge: %w", err)
	}
	client, err := windows.CreateFile(name, windows.GENERIC_READ|windows.GENERIC_WRITE, 0, nil, windows.OPEN_EXISTING,
		windows.FILE_FLAG_OVERLAPPED, 0)
	if err != nil {
		_ = windows.CloseHandle(server)
		return nil, nil, fmt.Errorf("the bridge: %w", err)
	}
	return os.NewFile(uintptr(server), "bridge"), os.NewFile(uintptr(client), "bridge in the sandbox"), nil
}

// pipeConn is a pipe as a connection.
type pipeConn struct{ *os.File }

func (p pipeConn) LocalAddr() net.Addr  { return pipeAddr{} }
func (p pipeConn) RemoteAddr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "bridge" }

// connOf makes a connection of waldo's end. The caller closes the file.
func connOf(f *os.File) (net.Conn, error) {
	var copied windows.Handle
	self := windows.CurrentProcess()
	if err := windows.DuplicateHandle(self, windows.Handle(f.Fd()), self, &copied, 0, false,
		windows.DUPLICATE_SAME_ACCESS); err != nil {
		return nil, fmt.Errorf("the bridge: %w", err)
	}
	return pipeConn{os.NewFile(uintptr(copied), "bridge")}, nil
}
