// Package safefile opens, locks and replaces files that several processes of waldo share.
package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes a file whole or not at all, in place of one that is there. After a crash it has the old content or the
// new. The umask does not change mode.
func Replace(path string, b []byte, mode fs.FileMode) error { return put(path, b, mode, os.Rename) }

// Create does the same for a file that is not there yet. One that is there is left alone, and is fs.ErrExist.
func Create(path string, b []byte, mode fs.FileMode) error { return put(path, b, mode, os.Link) }

func put(path string, b []byte, mode fs.FileMode, place func(from, to string) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := place(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}
