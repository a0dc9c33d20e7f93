//go:build unix

package agenthosts

import (
	"io/fs"
	"os"
	"syscall"
)

// owner is who a file belongs to.
type owner struct {
	uid, gid int
	known    bool
}

func ownerOf(st fs.FileInfo) owner {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return owner{}
	}
	return owner{int(s.Uid), int(s.Gid), true}
}

// give sets the new file's owner to the old file's owner. Only root can give files away: for other users the file is
// theirs, or give fails.
func (o owner) give(f *os.File) error {
	if !o.known {
		return nil
	}
	st, err := f.Stat()
	if err != nil || ownerOf(st) == o {
		return err
	}
	return f.Chown(o.uid, o.gid)
}
