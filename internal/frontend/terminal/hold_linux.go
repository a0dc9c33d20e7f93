package terminal

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Hold has the kernel refuse other programs that open the terminal f (TIOCEXCL), until release is called. The error
// explains why they are not refused: the kernel lets those with CAP_SYS_ADMIN in, root's as a rule. Programs that have
// the terminal open keep it.
func Hold(f *os.File) (release func(), err error) {
	fd := int(f.Fd())
	was, err := unix.IoctlGetInt(fd, unix.TIOCGEXCL)
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TIOCEXCL, 0)
	}
	if err != nil {
		return func() {}, err
	}
	release = func() {
		if was == 0 {
			_ = unix.IoctlSetInt(fd, unix.TIOCNXCL, 0)
		}
	}
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		_ = unix.Close(again)
		return release, errors.New("the kernel lets this user's programs open it")
	case errors.Is(err, unix.EBUSY):
		return release, nil
	}
	return release, err
}
