package terminal

import (
	"os"

	"golang.org/x/sys/windows"
)

// flush discards what was typed at a terminal and not read yet.
func flush(f *os.File) error { return windows.FlushConsoleInputBuffer(windows.Handle(f.Fd())) }
