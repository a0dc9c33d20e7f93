package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/model/contract"
)

// runs are the names in a project, at any depth, that make programs of this machine run something. Anything that a
// server writes there would run outside of its sandbox. They are read-only if they exist.
var runs = []string{
	".git", ".mcp.json", ".claude", ".codex", ".cursor", ".gemini", ".vscode", ".zed", ".idea", ".envrc", ".husky",
	"waldo.yaml", "waldo.lock",
}

// Runs returns them, for those who keep an agent from writing them by other ways.
func Runs() []string { return slices.Clone(runs) }

// gitRuns are those of a repository that a server may write.
var gitRuns = []string{".git/hooks", ".git/config", ".git/modules"}

// Bounds of a writable folder: more is not looked through, so it cannot be sealed.
const (
	maxProject = 200_000 // entries, but for those below .git and node_modules
	maxSealed  = 100
)

// writable makes a mount writable. It returns what speaks against that.
func writable(m *Mount, s contract.Server, x contract.Mount) *Fault {
	fail := func(hint, format string, a ...any) *Fault {
		return &Fault{
			At: x.At, Refused: true, Text: fmt.Sprintf("mounts: %s: ", x.Target) + fmt.Sprintf(format, a...), Hint: hint,
		}
	}
	if info, err := os.Stat(m.Source); err != nil || !info.IsDir() {
		return fail("name a folder", "%s is not a folder, so it cannot be writable", m.Source)
	}
	var names []string
	if own, err := filepath.Abs(s.At.File); err == nil {
		own = resolved(own)
		switch dir := filepath.Dir(own); {
		case dir == m.Source:
			names = []string{filepath.Base(own)}
		case contract.Within(dir, m.Source):
			return fail("name a folder that does not hold it, or its own folder",
				"%s is below it: the server could exchange the folder of its own contract", own)
		}
	}
	m.Writable = true
	root, err := os.OpenRoot(m.Source)
	if err != nil {
		return fail("", "%v", err)
	}
	defer root.Close()
	found, socket, err := lookThrough(root)
	switch {
	case err != nil:
		return fail("name a folder with fewer files", "%v", err)
	case socket != "":
		return fail("remove it, or show a folder without it", "%s connects with programs of this machine",
			filepath.Join(m.Source, socket))
	}
	for _, name := range found {
		if path.Base(name) == ".git" && x.Git {
			for _, g := range gitRuns {
				names = append(names, path.Join(path.Dir(name), g))
			}
		} else if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		switch there, err := plain(root, name); {
		case err != nil:
			return fail("remove the link", "%s: %v", path.Join(m.Source, name), err)
		case there:
			m.Sealed = append(m.Sealed, name)
		}
	}
	if len(m.Sealed) > maxSealed {
		return fail("name a folder of one project",
			"it holds %d repositories and settings of programs; at most %d can be kept read-only", len(m.Sealed), maxSealed)
	}
	return nil
}

// plain reports whether a name exists, and refuses one that goes through a link.
func plain(root *os.Root, name string) (bool, error) {
	at := ""
	for part := range strings.SplitSeq(name, "/") {
		at = path.Join(at, part)
		info, err := root.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return false, errors.New("a link cannot be kept from being changed")
		}
		if !info.IsDir() && at != name {
			return false, nil
		}
	}
	return true, nil
}

// maxLooked is how many entries a Ledger looks at.
const maxLooked = 20_000

// lookThrough returns the names of a folder that make programs run something, and a socket, pipe or device in it.
func lookThrough(root *os.Root) (found []string, socket string, err error) {
	n := 0
	err = fs.WalkDir(root.FS(), ".", func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // waldo cannot read it, so the server cannot either
		}
		if n++; n > maxProject {
			return fmt.Errorf("it has more than %d entries", maxProject)
		}
		if e.Type()&(fs.ModeSocket|fs.ModeNamedPipe|fs.ModeDevice) != 0 {
			socket = at
			return fs.SkipAll
		}
		if slices.Contains(runs, e.Name()) {
			found = append(found, at)
		}
		if e.IsDir() && (e.Name() == ".git" || e.Name() == "node_modules") {
			return fs.SkipDir
		}
		return nil
	})
	return found, socket, err
}
