//go:build unix

package runner

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// owner returns the user and group of a writable folder, for the sandbox to have the same numbers: programs compare them,
// as git does in its index. Both are 0 for a folder of root: no sandbox runs as root. A user other than root shows no
// folder of another user.
func owner(info fs.FileInfo) (uid, gid int, err error) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, fmt.Errorf("the owner of %s is not known", info.Name())
	}
	own := os.Geteuid()
	if uid, gid = int(st.Uid), int(st.Gid); uid != own && own != 0 {
		return 0, 0, fmt.Errorf("%s belongs to user %d, and waldo runs as user %d: name a folder of your own", info.Name(), uid, own)
	}
	if own != 0 {
		gid = os.Getegid() // the only group that the sandbox has
	}
	if uid == 0 || gid == 0 {
		return 0, 0, nil
	}
	return uid, gid, nil
}

// identity returns the device and the inode of a folder; zeros: they are not known.
func identity(root *os.Root) (device, inode uint64) {
	if root == nil {
		return 0, 0
	}
	info, err := root.Stat(".")
	if err != nil {
		return 0, 0
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), st.Ino
	}
	return 0, 0
}
