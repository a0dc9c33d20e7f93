package pkginstall

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

var (
	digestNamed = lazy(`^[0-9a-f]{64}$`)
	halfDone    = lazy(`^\.(new|seed|gone)-`)
)

// unfinished is how long a folder stays that an install left behind which never ended.
const unfinished = 24 * time.Hour

// Sweep deletes the installed packages below dir that were not used since a time. Starting a server uses its package,
// and so do the pins of the waldo that sweeps. It leaves other files alone. Another waldo may start a server at the
// same time: Sweep first moves a folder aside, and back if it was used in that moment. A waldo that finds no folder
// installs the package again.
func Sweep(dir string, now, before time.Time, pins []*Pin) (gone []string, err error) {
	i := &Installer{Dir: dir}
	for _, p := range pins {
		if err := use(i.folder(p), now); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err // otherwise the package would look unused
		}
	}
	return sweep(dir, now, before, func(string) {})
}

// use says that a folder is in use.
func use(folder string, now time.Time) error { return os.Chtimes(folder, now, now) }

// sweep is Sweep without pins. It calls looked with each folder after checking it and before moving it.
func sweep(dir string, now, before time.Time, looked func(folder string)) (gone []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	errs := []error{err}
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		limit := before
		if halfDone().MatchString(e.Name()) {
			limit = now.Add(-unfinished)
		} else if !digestNamed().MatchString(e.Name()) {
			continue
		}
		st, err := os.Lstat(at)
		if err != nil || !st.IsDir() || !st.ModTime().Before(limit) {
			continue
		}
		looked(at)
		aside := at
		if !strings.HasPrefix(e.Name(), ".gone-") {
			aside = filepath.Join(dir, ".gone-"+e.Name())
			if err := os.Rename(at, aside); err != nil {
				if !errors.Is(err, os.ErrNotExist) { // another waldo was quicker
					errs = append(errs, err)
				}
				continue
			}
		}
		if st, err := os.Lstat(aside); err == nil && !st.ModTime().Before(limit) && os.Rename(aside, at) == nil {
			continue
		}
		if err := os.RemoveAll(aside); err != nil {
			errs = append(errs, err)
			continue
		}
		gone = append(gone, e.Name())
	}
	return gone, errors.Join(errs...)
}
