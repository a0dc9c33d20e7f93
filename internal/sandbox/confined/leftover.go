//go:build linux && (amd64 || arm64)

package confined

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/volume"
)

// The folders of a sandbox have the first name until they are locked, and then the second. The lock says that
// the waldo that made them lives.
const (
	unlocked = "waldo-confining-"
	locked   = "waldo-confined-"
)

// staleAfter is how old a folder without its lock must be before it is taken for left over.
const staleAfter = time.Minute

// tempDir is where the folders of sandboxes are made: the first temporary folder that the sandbox's user can go
// into. Started by root that is another than ours, and a private $TMPDIR is closed to it.
func tempDir() string {
	for _, dir := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if os.Geteuid() != 0 || open(dir) {
			return dir
		}
	}
	return os.TempDir()
}

// open reports whether all users can enter a folder.
func open(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// makeDir makes the folder of the sandbox in a temporary folder.
func (b *instance) makeDir(temp string) error {
	made, err := os.MkdirTemp(temp, unlocked)
	if err != nil {
		return err
	}
	b.dir = made
	if b.held, err = os.Open(made); err != nil {
		return err
	}
	if err := unix.Flock(int(b.held.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	if err := os.Chmod(made, 0o711); err != nil {
		return err
	}
	name := filepath.Join(temp, locked+strings.TrimPrefix(filepath.Base(made), unlocked))
	if err := os.Rename(made, name); err != nil {
		return err
	}
	b.dir = name
	return nil
}

// sweep removes the sandboxes' folders of waldo processes that were killed. The next waldo tries again those
// that cannot be removed now.
func sweep(temp string) {
	for _, name := range []string{unlocked, locked} {
		found, _ := filepath.Glob(filepath.Join(temp, name+"*"))
		for _, dir := range found {
			remove(dir, name == unlocked)
		}
	}
}

// remove removes a folder if it is ours, and no process holds it.
func remove(dir string, young bool) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() ||
		young && time.Since(info.ModTime()) < staleAfter {
		return
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	// Make closed folders accessible again: a command can have removed its own rights.
	_ = volume.Walk(f, func(volume.Entry) bool { return true })
	_ = os.RemoveAll(dir)
}
