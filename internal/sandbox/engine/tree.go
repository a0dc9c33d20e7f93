package engine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"waldo/internal/model/facts"
)

// bounds are how much of a tree is copied.
type bounds struct{ bytes, entries int64 }

// copyTree copies regular files and folders, and no links. It fails at the first entry beyond the bounds.
func copyTree(from, to string, most bounds, only []string, names *[]string) error {
	source, err := os.OpenRoot(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer target.Close()
	return fs.WalkDir(source.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if only != nil && !slices.Contains(only, name) {
			return nil
		}
		if most.entries--; most.entries < 0 {
			return errors.New("more files than the limit")
		}
		switch {
		case e.IsDir():
			return target.MkdirAll(name, 0o755)
		case !e.Type().IsRegular():
			return nil
		}
		n, err := copyFile(source, target, name, most.bytes)
		if most.bytes -= n; err == nil && names != nil {
			*names = append(*names, filepath.ToSlash(name))
		}
		return err
	})
}

func copyFile(source, target *os.Root, name string, most int64) (int64, error) {
	in, err := source.Open(name)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	if st, err := target.Lstat(name); err == nil && !st.Mode().IsRegular() {
		return 0, fmt.Errorf("%s: not over a link or folder", name)
	}
	out, err := target.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(out, io.LimitReader(in, most+1))
	if n > most {
		err = errors.Join(err, errors.New("more bytes than the limit"))
	}
	return n, errors.Join(err, out.Close())
}

// stamp tells whether a file has changed.
type stamp struct {
	size int64
	time time.Time
}

func stamps(dir string) (map[string]stamp, error) {
	all := map[string]stamp{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		if st, err := e.Info(); err == nil {
			all[name] = stamp{st.Size(), st.ModTime()}
		}
		return nil
	})
	return all, err
}

// changes fills in which files of the output the program wrote and removed.
func (b *plain) changes(f *facts.Facts) {
	after, err := stamps(b.at("output"))
	if err != nil {
		f.Warnings = append(f.Warnings, "the files of the program could not be listed")
		return
	}
	for name, s := range after {
		f.Usage.DiskBytes += s.size
		if was, ok := b.before[name]; !ok || was != s {
			f.Files.Written = append(f.Files.Written, "/workspace/output/"+name)
		}
	}
	for name := range b.before {
		if _, ok := after[name]; !ok {
			f.Files.Removed = append(f.Files.Removed, "/workspace/output/"+name)
		}
	}
	sort.Strings(f.Files.Written)
	sort.Strings(f.Files.Removed)
}
