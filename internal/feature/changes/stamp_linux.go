package changes

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stamp distinguishes one state of a file from another. No program can set Changed, the time of the last change of the
// file or of its attributes.
type stamp struct {
	Dev, Inode uint64
	Size       int64
	Modified   int64 // nanoseconds
	Changed    int64 // nanoseconds
	Mode       fs.FileMode
}

func (s stamp) file() [2]uint64 { return [2]uint64{s.Dev, s.Inode} }

func stampOf(info fs.FileInfo) stamp {
	s := stamp{Size: info.Size(), Mode: info.Mode()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Dev, s.Inode = uint64(st.Dev), st.Ino //nolint:unconvert // another type elsewhere
		s.Modified, s.Changed = st.Mtim.Nano(), st.Ctim.Nano()
	}
	return s
}

// coarse is the time that a file would get that is changed now (time(7)).
func coarse() time.Time {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &t) != nil {
		return time.Now().Add(-10 * time.Millisecond) // a tick of the kernel
	}
	return time.Unix(t.Unix())
}

// isWhiteout reports an overlay's mark of a removed name: a device 0/0.
func isWhiteout(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode()&fs.ModeCharDevice != 0 && st.Rdev == 0
}

// isOpaque reports an overlay's mark of a folder that hides the one below.
func isOpaque(f *os.File) bool {
	var b [8]byte
	n, err := unix.Fgetxattr(int(f.Fd()), "user.overlay.opaque", b[:])
	return err == nil && n > 0 && b[0] == 'y'
}

// cameFromBelow reports whether a file was copied from the folder below. It errs to false.
func cameFromBelow(root *os.Root, at string) bool {
	var b [64]byte
	n, err := unix.Lgetxattr(filepath.Join(root.Name(), at), "user.overlay.origin", b[:])
	return err == nil && n > 0
}

// ownedAs gives a file in a folder the owner of another.
func ownedAs(dir *os.Root, base string, as fs.FileInfo) error {
	st, ok := as.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return dir.Lchown(base, int(st.Uid), int(st.Gid))
}
