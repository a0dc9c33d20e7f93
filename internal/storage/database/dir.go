package database

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// CheckDir checks a state directory and returns its absolute path. It creates a missing one with mode 0700. The last
// part must be a folder, not a link, owned by this user and writable by this user alone. CheckDir removes read access
// of others. Each folder above must not let others replace the next one.
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
	return dir, MakeDir(dir)
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

// MakeDir makes a state directory with mode 0700. It does not check the folders above: the caller mounts the directory
// elsewhere. One that is there must be the user's own.
func MakeDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("store: %w", err)
	}
	return checkOwn(dir)
}
