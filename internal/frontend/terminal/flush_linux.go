package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// flush discards what was typed at a terminal and not read yet.
func flush(f *os.File) error { return unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH) }
