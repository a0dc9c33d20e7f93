package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"waldo/internal/model/id"
)

// Sweep deletes the workspaces below root that were last opened before a time, except those for which keep returns
// true. It returns the deleted ids and leaves other files alone.
func Sweep(root string, before time.Time, keep func(ident string) bool) (gone []string, err error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	errs := []error{err}
	for _, e := range entries {
		st, err := e.Info()
		if err != nil || !st.IsDir() || !id.Is(id.Workspace, e.Name()) || keep(e.Name()) || !st.ModTime().Before(before) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(root, e.Name())); err != nil {
			errs = append(errs, err)
			continue
		}
		gone = append(gone, e.Name())
	}
	return gone, errors.Join(errs...)
}
