//go:build unix

package source

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// readPrivate reads a regular file of at most 64 KiB that belongs to us or to root and that neither
// group nor others can open. It follows no link in the last step of the path, waits for no pipe,
// and judges the file it opened, not the name.
func readPrivate(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrMissing
	case errors.Is(err, syscall.ELOOP):
		return nil, ErrUnsafe
	case err != nil:
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !private(info, os.Geteuid()) {
		return nil, ErrUnsafe
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, ErrTooBig
	}
	return b, nil
}

// private reports whether only uid, or root, can read and change a regular file.
func private(info fs.FileInfo, uid int) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return false
	}
	if info.Mode().Perm()&0o077 != 0 {
		return false
	}
	return st.Uid == 0 || int64(st.Uid) == int64(uid)
}
