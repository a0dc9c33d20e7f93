package changes

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"waldo/internal/model/display"
	"waldo/internal/model/facts"
	"waldo/internal/storage/safefile"
)

// maxText is how large a file is shown as text, in bytes.
const maxText = 128 << 10

// Show writes a record for a person: each change, with the lines of a text.
func (s *Store) Show(w io.Writer, r *Record, paths []string) error {
	for n, f := range r.Folders {
		display.Fprintf(w, "%s (%s)\n", facts.Name(f.Source), r.Mode)
		low, err := safefile.Exact(f.Source)
		if err != nil {
			return err
		}
		defer low.Close()
		for _, h := range f.Held {
			display.Fprintf(w, "H %s  (protected; taken out; a copy is in %s)\n", facts.Name(h), s.at(r.ID, heldDir(n)))
		}
		for _, e := range f.Entries {
			if yes, _ := chosen(f, e, paths); yes {
				if err := s.showEntry(w, r, n, low, e); err != nil {
					return err
				}
			}
		}
		if f.Partial {
			display.Fprintf(w, "there can be more changes: the folder has over %d names\n", maxEntries)
		}
	}
	return nil
}

var signs = map[Op]string{Added: "A", Modified: "M", Removed: "D", Renamed: "R"}

func (s *Store) showEntry(w io.Writer, r *Record, n int, low *os.Root, e *Entry) error {
	line := signs[e.Op] + " " + facts.Name(e.Path)
	if e.Op == Renamed {
		line += " from " + facts.Name(e.From)
	}
	if e.Op == Modified && e.Mode != e.Was {
		line += fmt.Sprintf("  mode %v -> %v", e.Was, e.Mode)
	} else if e.Op == Added {
		line += fmt.Sprintf("  mode %v", e.Mode)
	}
	if e.Protected != "" {
		line += "  (protected: " + e.Protected + ")"
	}
	if e.State != made && e.State != waiting {
		line += "  " + e.State
	}
	display.Fprintf(w, "%s\n", line)
	if e.Mode.IsDir() || e.Op == Removed {
		return nil
	}
	after, before := low, low
	if e.State == waiting {
		up, err := os.OpenRoot(s.upper(r.ID, n))
		if err != nil {
			return err
		}
		defer up.Close()
		after = up
	}
	old := e.Path
	if e.Before {
		was, err := os.OpenRoot(s.at(r.ID, beforeDir(n)))
		if err != nil {
			return err
		}
		defer was.Close()
		if before = was; e.Op == Renamed {
			old = e.From
		}
	} else if e.State != waiting || e.Op == Added {
		before = nil
	}
	return showFile(w, e, before, old, after)
}

// showFile writes the lines of a text that differ, the target of a link, or the size and digest of other files.
func showFile(w io.Writer, e *Entry, before *os.Root, old string, after *os.Root) error {
	if e.Mode.Type() == fs.ModeSymlink {
		to, err := after.Readlink(e.Path)
		if err != nil {
			return nil // gone since
		}
		leads := ""
		if filepath.IsAbs(to) || !filepath.IsLocal(path.Join(path.Dir(e.Path), to)) {
			leads = "  (leads out of the folder)"
		}
		display.Fprintf(w, "  link to %s%s\n", facts.Name(to), leads)
		return nil
	}
	b, size, digest, err := read(after, e.Path)
	if err != nil {
		return nil // gone since
	}
	was, text := []byte(nil), true
	if before != nil && e.Was.IsRegular() {
		var large int64
		if was, large, _, err = read(before, old); err != nil || large > maxText {
			text = false
		}
	}
	if !text || size > maxText || !plain(b) || !plain(was) {
		display.Fprintf(w, "  %d bytes, sha256:%s\n", size, digest)
		return nil
	}
	if string(was) == string(b) {
		return nil
	}
	for _, l := range lines(string(was), string(b)) {
		display.Fprintf(w, "  %s\n", l)
	}
	return nil
}

// read returns the beginning of a file, its size and its digest.
func read(root *os.Root, name string) (b []byte, size int64, digest string, err error) {
	f, err := safefile.OpenIn(root, name)
	if err != nil {
		return nil, 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	if b, err = io.ReadAll(io.TeeReader(io.LimitReader(f, maxText), h)); err == nil {
		size, err = io.Copy(h, f)
	}
	return b, size + int64(len(b)), fmt.Sprintf("%x", h.Sum(nil)), err
}

func plain(b []byte) bool { return utf8.Valid(b) && !strings.ContainsRune(string(b), 0) }

// lines returns the lines that differ, with - and +, between the same lines at both ends. It does not look for moved
// lines in files of over 2,000 different ones.
func lines(before, after string) (out []string) {
	const most = 2000
	a, b := split(before), split(after)
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		start++
	}
	a, b = a[start:], b[start:]
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	out = append(out, fmt.Sprintf("@@ line %d", start+1))
	if len(a) > most || len(b) > most {
		return append(append(out, prefixed("-", a)...), prefixed("+", b)...)
	}
	length := make([][]int, len(a)+1) // of the longest common subsequence from here on
	for i := range length {
		length[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out, i, j = append(out, " "+a[i]), i+1, j+1
		case j == len(b) || i < len(a) && length[i+1][j] >= length[i][j+1]:
			out, i = append(out, "-"+a[i]), i+1
		default:
			out, j = append(out, "+"+b[j]), j+1
		}
	}
	return out
}

func prefixed(sign string, lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = sign + l
	}
	return out
}

func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}
