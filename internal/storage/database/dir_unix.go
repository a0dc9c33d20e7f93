//go:build unix

package database

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// permissions says that the mode of a folder means something on this system.
const permissions = true

// ownedAndClosed refuses a folder of someone else's, or one that others can write.
func ownedAndClosed(dir string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("store: state directory %s belongs to another user; use one of your own", dir)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("store: others can write state directory %s (mode %04o); look at its files, then chmod 700 it", dir, info.Mode().Perm())
	}
	return nil
}

// checkAbove refuses a path on which someone else could swap a folder: each folder down to dir
// must be owned by this user or root, and writable by others only with the sticky bit.
func checkAbove(dir string) error {
	for {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || (st.Uid != 0 && int(st.Uid) != os.Geteuid()) {
			return fmt.Errorf("store: %s, above the state directory, belongs to another user", dir)
		}
		open := fs.FileMode(0o022)
		if int(st.Gid) == os.Getegid() {
			open = 0o002 // a group of the user's own, as some systems give
		}
		if info.Mode().Perm()&open != 0 && info.Mode()&fs.ModeSticky == 0 {
			return fmt.Errorf("store: others can write %s, above the state directory (mode %04o)", dir, info.Mode().Perm())
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		return nil
	}
}

// noRoom reports whether next to nothing more fits on the disk of a folder.
func noRoom(dir string) bool {
	var st syscall.Statfs_t
	return syscall.Statfs(dir, &st) == nil && uint64(st.Bavail)*uint64(st.Bsize) < 64<<10
}
