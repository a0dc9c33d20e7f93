package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// flush discards what was typed at a terminal and not read yet.
func flush(f *os.File) error {
	const read = 1 // FREAD of <sys/fcntl.h>
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.TIOCFLUSH, read)
}
