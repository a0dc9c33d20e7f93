package pkgcache

import (
	"fmt"
	"io/fs"
	"syscall"
)

// stamp changes whenever a file is written: nothing but the kernel sets the time of a change. "" is unknown.
func stamp(i fs.FileInfo) string {
	st, ok := i.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprint(st.Dev, st.Ino, st.Size, st.Ctim.Sec, st.Ctim.Nsec)
}
