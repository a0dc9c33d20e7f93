package files

import (
	"io/fs"
	"syscall"
)

func stampOf(info fs.FileInfo) stamp {
	st := stamp{size: info.Size(), changed: info.ModTime().UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		st.inode, st.changed = sys.Ino, sys.Ctim.Nano()
	}
	return st
}
