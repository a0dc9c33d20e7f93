// Package codefiles puts generated code into a folder. It replaces only files that it wrote itself.
package codefiles

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"waldo/internal/app/fault"
	"waldo/internal/feature/gen/codegen"
)

// Written lists what Write did, by paths below the folder.
type Written struct {
	Written []string `json:"written"`
	Same    []string `json:"same"`
	Removed []string `json:"removed"` // of tools that are gone
}

// maxFile is the largest file that is read to compare it.
const maxFile = 16 << 20

// Write puts all files of a server below a folder, or none: it refuses if a file there is not of this server, or was
// changed by hand. It removes files of this server, in the languages of the given ones, that are no longer generated.
// No symbolic link leads it out of the folder.
func Write(folder, server string, files []codegen.File) (done Written, err error) {
	done = Written{[]string{}, []string{}, []string{}}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return done, err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return done, err
	}
	defer root.Close()
	var changed []codegen.File
	suffixes, wanted, dirs := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, f := range files {
		suffixes[path.Ext(f.Path)], wanted[f.Path], dirs[path.Dir(f.Path)] = true, true, true
		switch old, err := read(root, f.Path); {
		case errors.Is(err, fs.ErrNotExist):
			changed = append(changed, f)
		case err != nil:
			return done, err
		case bytes.Equal(old, f.Text):
			done.Same = append(done.Same, f.Path)
		default:
			if why := codegen.Owned(server, old); why != nil {
				return done, fault.Usage("move it away, or give another --out or --name", "%s is not replaced: %v", f.Path, why)
			}
			changed = append(changed, f)
		}
	}
	for _, f := range changed {
		if err := replace(root, f); err != nil {
			return done, err
		}
		done.Written = append(done.Written, f.Path)
	}
	for dir := range dirs {
		if err := sweep(root, dir, server, suffixes, wanted, &done); err != nil {
			return done, err
		}
	}
	return done, nil
}

// sweep removes files of the server that are not wanted.
func sweep(root *os.Root, dir, server string, suffixes, wanted map[string]bool, done *Written) error {
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if wanted[name] || !suffixes[path.Ext(name)] || !e.Type().IsRegular() {
			continue
		}
		if text, err := read(root, name); err != nil || codegen.Owned(server, text) != nil {
			continue // not of this command
		}
		if err := root.Remove(name); err != nil {
			return err
		}
		done.Removed = append(done.Removed, name)
	}
	slices.Sort(done.Removed)
	return nil
}

// read returns a regular file.
func read(root *os.Root, name string) ([]byte, error) {
	st, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxFile {
		return nil, fault.Usage("move it away", "%s is not replaced: waldo gen did not write it", name)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// replace writes a file beside its place and renames it.
func replace(root *os.Root, f codegen.File) error {
	if err := root.MkdirAll(path.Dir(f.Path), 0o755); err != nil {
		return err
	}
	temporary := path.Join(path.Dir(f.Path), ".new-"+rand.Text())
	h, err := root.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = h.Write(f.Text)
	if err = errors.Join(err, h.Close()); err == nil {
		err = root.Rename(temporary, f.Path)
	}
	if err != nil {
		_ = root.Remove(temporary)
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	return nil
}
