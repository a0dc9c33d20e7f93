package agenthosts

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Ledger keeps what files were before waldo changed them, in a folder that only the operator reads.
type Ledger struct{ Dir string }

// Change is one change of one file.
type Change struct {
	Path    string    `json:"path"`
	Project string    `json:"project,omitempty"` // see Open
	Host    string    `json:"host"`
	Server  string    `json:"server"` // the name of our entry
	At      time.Time `json:"at"`
	Existed bool      `json:"existed"`
	Before  []byte    `json:"before"`
	After   string    `json:"after"`             // SHA-256 of the text that was written
	Removed []string  `json:"removed,omitempty"` // other servers that were taken out
	file    string
}

func digest(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func (l Ledger) name(path string, n int) string {
	return filepath.Join(l.Dir, fmt.Sprintf("%s-%04d.json", digest([]byte(path))[:24], n))
}

// Last returns the newest change of a file that was not undone, or nil.
func (l Ledger) Last(path string) (*Change, error) {
	names, err := filepath.Glob(filepath.Join(l.Dir, digest([]byte(path))[:24]+"-*.json"))
	if err != nil || len(names) == 0 {
		return nil, err
	}
	last := names[len(names)-1] // Glob sorts
	b, err := os.ReadFile(last)
	if err != nil {
		return nil, err
	}
	c := &Change{file: last}
	if err := json.Unmarshal(b, c); err != nil || c.Path != path {
		return nil, fmt.Errorf("%s is damaged: it holds the text before a change, in base64", last)
	}
	return c, nil
}

// Keep notes a change before it is made, and returns where. A change of the text that the last one
// wrote becomes one with it, so that one undo goes back to where there was none.
func (l Ledger) Keep(c Change, after []byte) (string, error) {
	c.After = digest(after)
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return "", err
	}
	last, err := l.Last(c.Path)
	if err != nil {
		return "", err
	}
	to := l.name(c.Path, 1)
	if last != nil {
		if last.After == digest(c.Before) {
			c.Before, c.Existed, c.Removed = last.Before, last.Existed, append(last.Removed, c.Removed...)
			to = last.file
		} else {
			n := 0
			if _, err := fmt.Sscanf(filepath.Base(last.file)[25:], "%d.json", &n); err != nil {
				return "", err
			}
			to = l.name(c.Path, n+1)
		}
	}
	b, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	f := &File{Path: to, root: l.Dir, name: filepath.Base(to), mode: 0o600}
	if old, err := os.ReadFile(to); err == nil {
		f.Text, f.Exists = old, true
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return to, f.Replace(b)
}

// File is where the change is noted.
func (c *Change) File() string { return c.file }

// Forget removes a change that was undone.
func (l Ledger) Forget(c *Change) error { return os.Remove(c.file) }

// Undone returns the file's text before a change, and whether that is exact. If the file has changed since, it
// reverts only this change.
func (c *Change) Undone(h *Host, now []byte) (text []byte, exact bool, err error) {
	if digest(now) == c.After {
		return c.Before, true, nil
	}
	before, err := h.tree(c.Path, c.Before)
	if err != nil {
		return nil, false, err
	}
	under := before.Path(h.Under...)
	if old := under.Get(c.Server); old != nil {
		text, err = h.Put(c.Path, now, c.Server, *old)
	} else {
		text, err = h.Take(c.Path, now, c.Server)
	}
	for _, name := range c.Removed {
		if old := under.Get(name); err == nil && old != nil {
			text, err = h.Put(c.Path, text, name, *old)
		}
	}
	return text, false, err
}
