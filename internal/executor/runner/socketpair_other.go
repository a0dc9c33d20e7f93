//go:build !linux && !windows

package runner

import (
	"net"
	"os"
	"syscall"
)

// socketpair makes two connected Unix stream sockets that no child inherits.
func socketpair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock() // until both close at exec
	defer syscall.ForkLock.RUnlock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	return os.NewFile(uintptr(fds[0]), "bridge"), os.NewFile(uintptr(fds[1]), "bridge in the sandbox"), nil
}

// connOf makes a connection of waldo's end. The caller closes the file.
func connOf(f *os.File) (net.Conn, error) { return net.FileConn(f) }
