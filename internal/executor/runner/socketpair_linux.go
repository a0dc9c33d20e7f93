package runner

import (
	"net"
	"os"
	"syscall"
)

// socketpair makes two connected Unix stream sockets that no child inherits.
func socketpair() (ours, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	if err := syscall.SetNonblock(fds[1], false); err != nil { // the sandbox's end blocks
		_ = syscall.Close(fds[0])
		_ = syscall.Close(fds[1])
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fds[0]), "bridge"), os.NewFile(uintptr(fds[1]), "bridge in the sandbox"), nil
}

// connOf makes a connection of waldo's end. The caller closes the file.
func connOf(f *os.File) (net.Conn, error) { return net.FileConn(f) }
