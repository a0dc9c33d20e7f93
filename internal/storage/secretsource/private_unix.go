//go:build unix

package secretsource

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Mode bits that others must not have on a file with secrets: any, or write alone.
const onlyMine, mineToChange = fs.FileMode(0o077), fs.FileMode(0o022)

// readPrivate reads a regular file of at most 64 KiB that belongs to us or to root and with which
// group and others can do nothing of mask. It follows no link in the last step of the path, waits
// for no pipe, and judges the file it opened, not the name. stamp changes when the file does.
func readPrivate(path string, mask fs.FileMode) (b []byte, stamp string, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", ErrMissing
	case errors.Is(err, syscall.ELOOP):
		return nil, "", ErrUnsafe
	case err != nil:
		return nil, "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, "", err
	}
	if !private(info, os.Geteuid(), mask) {
		return nil, "", ErrUnsafe
	}
	b, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, "", err
	}
	if len(b) > maxFile {
		return nil, "", ErrTooBig
	}
	return b, stampIn(info), nil
}

// private reports whether a regular file is uid's or root's and others can do nothing of mask.
func private(info fs.FileInfo, uid int, mask fs.FileMode) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return false
	}
	if info.Mode().Perm()&mask != 0 {
		return false
	}
	return st.Uid == 0 || int64(st.Uid) == int64(uid)
}

// stampOf returns a value that changes with the file at a path; "" if the file is missing.
func stampOf(path string) string {
	info, err := os.Lstat(path)
	if err != nil {
		return ""
	}
	return stampIn(info)
}

func stampIn(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprint(st.Dev, st.Ino, info.Size(), info.ModTime().UnixNano(), info.Mode())
}
