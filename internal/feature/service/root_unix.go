//go:build unix

package service

import (
	"io/fs"
	"syscall"
)

func ofRoot(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == 0
}
