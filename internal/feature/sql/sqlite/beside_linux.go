package sqlite

import (
	"os"
	"path/filepath"
	"slices"
)

const descriptors = "/proc/self/fd"

// opened returns the descriptors of this process that are of regular files.
func opened() (files []string, err error) {
	all, err := os.ReadDir(descriptors)
	for _, fd := range all { // the one of ReadDir is closed by now
		if info, err := os.Stat(filepath.Join(descriptors, fd.Name())); err == nil && info.Mode().IsRegular() {
			files = append(files, fd.Name())
		}
	}
	return files, err
}

// beside returns an error unless each file that this process has opened since is in the folder of the database. SQLite
// opens by path, so a folder or a file on the way can have become a link since it was looked at.
func beside(path string, before []string) error {
	files, err := opened()
	for _, fd := range files {
		if slices.Contains(before, fd) {
			continue // given by who started waldo
		}
		if file, err := os.Readlink(filepath.Join(descriptors, fd)); err != nil || filepath.Dir(file) != filepath.Dir(path) {
			return refuse("file", "the database %s was exchanged while it was opened", filepath.Base(path))
		}
	}
	return err
}
