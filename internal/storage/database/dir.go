package database

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// CheckDir returns the absolute path of a state directory after checking it, and creates it with
// mode 0700 where it is missing. The last part must be a folder and no link, be owned by this
// user and be writable by nobody else; what others may merely read is closed to them. Every
// folder above it must be one in which nobody but this user and root could put another in its
// place.
func CheckDir(dir string) (string, error) {
	if dir == "" {
		return "", errors.New("store: no state directory was named")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("store: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return "", fmt.Errorf("store: %w", err)
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if err != nil {
		return "", fmt.Errorf("store: %w", err)
	}
	if err := checkAbove(parent); err != nil {
		return "", err
	}
	dir = filepath.Join(parent, filepath.Base(dir))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("store: %w", err)
	}
	return dir, checkOwn(dir)
}

// checkOwn checks the state directory itself.
func checkOwn(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("store: state directory %s is a link; name the folder that it points to", dir)
	case !info.IsDir():
		return fmt.Errorf("store: state directory %s is not a folder", dir)
	}
	if err := ownedAndClosed(dir, info); err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 && permissions {
		return os.Chmod(dir, 0o700)
	}
	return nil
}
