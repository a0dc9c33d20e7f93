package workspace

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"waldo/internal/model/id"
)

// Bounds of the results that a workspace keeps. The oldest give way to a new one.
const (
	MaxSpill   = 64 << 20 // bytes of all, and of one
	MaxSpilled = 1000     // files
	spillFor   = 24 * time.Hour
)

// Spill keeps a result that is too long for the agent, and returns its name in the folder of that name. The hint
// becomes part of the name as far as it is letters and digits. Files that are too old, and the oldest beyond the
// bounds, are deleted.
func (w *Workspace) Spill(hint, ending string, b []byte) (string, error) {
	if len(b) > MaxSpill {
		return "", fmt.Errorf("a result of %d bytes: at most %d are kept: %w", len(b), MaxSpill, ErrTooMuch)
	}
	name := safe(hint) + "-" + strings.TrimPrefix(id.New(id.Record), string(id.Record)) + "." + safe(ending)
	r, err := w.folder(Spill)
	if err != nil {
		return "", err
	}
	if err := w.age(time.Now(), MaxSpill-int64(len(b)), MaxSpilled-1); err != nil {
		return "", err
	}
	_, err = put(r, name, bytes.NewReader(b), int64(len(b)))
	return name, err
}

// age deletes kept results until they are young, of at most that many bytes, and at most that many.
func (w *Workspace) age(now time.Time, most int64, files int) error {
	r, err := w.folder(Spill)
	if err != nil {
		return err
	}
	entries, err := fs.ReadDir(r.FS(), ".")
	if err != nil {
		return err
	}
	all := make([]fs.FileInfo, 0, len(entries))
	for _, e := range entries {
		st, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // another call's
		}
		if err != nil {
			return err
		}
		all = append(all, st)
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int { // the newest first
		return cmp.Or(b.ModTime().Compare(a.ModTime()), strings.Compare(b.Name(), a.Name()))
	})
	for _, st := range all {
		most, files = most-st.Size(), files-1
		if most >= 0 && files >= 0 && now.Sub(st.ModTime()) < spillFor {
			continue
		}
		if err := r.Remove(st.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// spilled is the form of the names that Spill gives.
var spilled = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Za-z0-9_]{1,64}-[2-7a-z]{26}\.[a-z]{1,8}`) })

// Spilled returns the names of kept results that a text names, sorted, each once.
func (w *Workspace) Spilled(text []byte) ([]string, error) {
	var names []string
	for _, n := range spilled().FindAll(text, MaxSpilled) {
		names = append(names, string(n))
	}
	if len(names) == 0 {
		return nil, nil
	}
	r, err := w.folder(Spill)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(n string) bool {
		st, err := r.Lstat(n)
		return err != nil || !st.Mode().IsRegular()
	}), nil
}

func safe(s string) string {
	s = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' {
			return c
		}
		return '_'
	}, s)
	return s[:min(len(s), 64)]
}
