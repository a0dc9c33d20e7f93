// Package keyfiles knows the names under which programs keep passwords and keys. No tool of waldo reads them.
package keyfiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// names counts at any depth: their usual content is a credential.
var names = []string{".ssh", ".gnupg", ".aws", ".azure", ".kube", ".npmrc", ".yarnrc.yml", ".pypirc", ".netrc", ".pgpass",
	".git-credentials", ".docker", ".env", ".env~", ".envrc", ".vault-token", "id_rsa", "id_ed25519", "id_ecdsa", "id_dsa",
	"credentials.toml"}

// templates of .env files, which have no values, can be read.
var templates = []string{".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults"}

// Is reports whether one part of a path is such a name, also as other file systems compare it.
func Is(part string) bool {
	part = Folded(part)
	return slices.Contains(names, part) || strings.HasPrefix(part, ".env.") && !slices.Contains(templates, part)
}

// alike are the letters that Unicode folds to letters of ASCII (CaseFolding.txt).
var alike = strings.NewReplacer("\u00df", "ss", "\u1e9e", "ss", "\ufb00", "ff", "\ufb01", "fi", "\ufb02", "fl",
	"\ufb03", "ffi", "\ufb04", "ffl", "\ufb05", "st", "\ufb06", "st", "\u017f", "s", "\u212a", "k")

// Folded returns a name as file systems compare it that keep apart fewer names than Linux: without regard to case and
// composition (APFS, ext4 with casefold), without letters that have no form (HFS+, ext4), and without blanks and dots
// at its end (Windows).
func Folded(part string) string {
	if strings.ContainsFunc(part, func(c rune) bool { return c >= 0x80 || c < ' ' }) {
		part = alike.Replace(norm.NFC.String(strings.Map(func(c rune) rune {
			if unicode.In(c, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
				return -1
			}
			return c
		}, part)))
	}
	return strings.ToLower(strings.TrimRight(part, " ."))
}

// The limits of Below.
const (
	MaxFound   = 500
	maxEntries = 1 << 20
)

// stateFiles are the database of a waldo, and the file that names one in PostgreSQL. One of them lies at the top of its
// state, beside its secrets.
var stateFiles = []string{"waldo.db", "waldo.store"}

// ErrState is returned for the state directory of a waldo, and for each folder in one.
var ErrState = errors.New("it is in the state directory of a waldo, which holds its keys")

// ErrMany is returned for a folder that is too large to look through, or that has too many such names.
var ErrMany = errors.New("too many files")

// Below returns the files and folders below a folder that have such a name, outermost ones alone, as slash-separated
// paths; that of a folder ends in "/". Links are left out: what they lead to counts by its own name. So is a folder that
// cannot be read, and what is removed meanwhile.
// The state of a waldo below the folder counts as such a name; a folder within one is refused.
func Below(folder string) (found []string, err error) { return below(folder, maxEntries) }

func below(folder string, most int) (found []string, err error) {
	if err := OutsideState(folder); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	seen := 0
	add := func(name string) error {
		if found = append(found, name); len(found) > MaxFound {
			return fmt.Errorf("%w: more than %d have a name of keys", ErrMany, MaxFound)
		}
		return nil
	}
	var walk func(dir string) error
	walk = func(dir string) error {
		f, err := root.Open(dir)
		if err != nil {
			return unlessGone(err)
		}
		all, err := f.ReadDir(most - seen + 1) // no more of a large folder comes into memory
		f.Close()
		if err != nil && err != io.EOF {
			return unlessGone(err)
		}
		if seen += len(all); seen > most {
			return fmt.Errorf("%w: more than %d", ErrMany, most)
		}
		if IsState(all) {
			return add(dir + "/")
		}
		for _, e := range all {
			name := path.Join(dir, e.Name())
			switch {
			case e.Type()&fs.ModeSymlink != 0:
			case Is(e.Name()):
				if e.IsDir() {
					name += "/"
				}
				if err := add(name); err != nil {
					return err
				}
			case e.IsDir():
				if err := walk(name); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := walk("."); err != nil {
		return nil, err
	}
	slices.Sort(found)
	return found, nil
}

// OutsideState returns ErrState for the state of a waldo, and for a folder within one.
func OutsideState(folder string) error {
	at, err := filepath.Abs(folder)
	if err == nil {
		at, err = filepath.EvalSymlinks(at)
	}
	for ; err == nil; at = filepath.Dir(at) {
		for _, name := range stateFiles {
			if _, missing := os.Lstat(filepath.Join(at, name)); missing == nil {
				return ErrState
			}
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
	return err
}

// IsState reports whether a folder with these entries is the state directory of a waldo.
func IsState(all []fs.DirEntry) bool {
	return slices.ContainsFunc(all, func(e fs.DirEntry) bool { return slices.Contains(stateFiles, Folded(e.Name())) })
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
