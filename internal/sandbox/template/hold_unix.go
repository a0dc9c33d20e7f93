//go:build unix

package template

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The ways to hold a folder.
const (
	alone  = unix.LOCK_EX | unix.LOCK_NB // an error if another process holds it
	shared = unix.LOCK_SH                // waits for the exclusive holder
)

// hold locks a folder, and returns a function that unlocks it. The system unlocks it with the process, also where that
// is killed.
func hold(dir string, how int) (release func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, &os.PathError{Op: "flock", Path: dir, Err: err}
	}
	return func() { _ = f.Close() }, nil
}

// settled is how long a file must have been left alone before what was read of it is remembered: a clock's tick has
// passed then, so a later change has another time.
const settled = 2 * time.Second

// stamp identifies the state of a file by its metadata, which changes when the file does. It is empty if a
// change could go unseen.
func stamp(at string, now time.Time) string {
	var st unix.Stat_t
	if unix.Stat(at, &st) != nil || now.Sub(time.Unix(st.Ctim.Unix())) < settled {
		return ""
	}
	return fmt.Sprintf("file:%s %d %d %d %d.%d %d.%d", at, st.Dev, st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec,
		st.Ctim.Sec, st.Ctim.Nsec)
}
