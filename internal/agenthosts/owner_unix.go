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

// give makes a new file belong to the owner of the old one. Nobody but root can give files away, so
// for others it is a file of their own or an error.
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
