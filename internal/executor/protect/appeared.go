package protect

import (
	"cmp"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/executor/keyfiles"
	"waldo/internal/storage/safefile"
)

// Appeared returns the protected names that a run made: those of now that were not there before. Names that are
// harmless by what they hold are left out: the configuration of a new clone, and a working tree within the folder.
func (r Rules) Appeared(root *os.Root, before []Found) ([]Found, error) {
	now, err := r.lookInto(root)
	if err != nil {
		return nil, err
	}
	known := map[string]Found{}
	for _, f := range before {
		known[f.Path] = f
	}
	var out []Found
	for _, f := range now {
		if old, ok := known[f.Path]; ok && old.Mode.Type() == f.Mode.Type() && old.Link == f.Link {
			continue
		}
		if f.Row.Kind != Hide && !harmless(root, f) {
			if f = r.disarming(f); !slices.ContainsFunc(out, func(o Found) bool { return o.Path == f.Path }) {
				out = append(out, f)
			}
		}
	}
	return out, nil
}

// disarming returns what to take out. In a folder that is a repository by what it holds alone, that is HEAD: its other
// names can be the person's own, as a folder config. Below a folder .git, all names are git's.
func (r Rules) disarming(f Found) Found {
	if repo := strings.Split(f.Path, "/"); f.Row.git && r.inGit == nil && !slices.Contains(r.base, ".git") {
		repo = repo[:len(repo)-len(f.Row.parts)]
		if !slices.ContainsFunc(repo, func(part string) bool { return keyfiles.Folded(part) == ".git" }) {
			f.Path = path.Join(path.Join(repo...), "HEAD")
		}
	}
	return f
}

// harmless reports whether a new file of a repository can stay.
func harmless(root *os.Root, f Found) bool {
	switch f.Row.Pattern {
	case "git:hooks", "git:branches", "git:remotes":
		return f.Mode.IsDir() && onlySamples(root, f.Path)
	case "git:config", "git:config.worktree", ".gitmodules":
		b, ok := small(root, f)
		tree, harmless := harmlessConfig(b)
		return ok && harmless && (tree == "" || isTree(root, path.Dir(f.Path), tree))
	case "git:gitdir":
		return true // leads from a repository to its working tree: git only reads it
	case "git:commondir":
		return ofWorktree(root, f)
	case "git:objects/info/alternates", ".git":
		b, ok := small(root, f)
		return ok && within(root, f, string(b))
	}
	return false
}

// isTree reports whether a repository's core.worktree is the working tree of a submodule below the root: a file .git in
// it counts.
func isTree(root *os.Root, repo, tree string) bool {
	below := strings.TrimLeft(tree, "./")
	if strings.Contains(below, "..") || path.IsAbs(tree) || !filepath.IsLocal(path.Join(repo, tree)) {
		return false
	}
	info, err := root.Lstat(path.Join(repo, tree, ".git"))
	return err == nil && info.Mode().IsRegular()
}

// ofWorktree reports whether a commondir is that of a linked working tree of a repository whose own names count. Any
// other one has git take the configuration and hooks of a folder that is no repository by what it holds.
func ofWorktree(root *os.Root, f Found) bool {
	b, ok := small(root, f)
	parts := strings.Split(f.Path, "/")
	n := len(parts) - 3 // REPOSITORY/worktrees/NAME/commondir
	if !ok || strings.TrimSpace(string(b)) != "../.." || n < 0 || parts[n] != "worktrees" {
		return false
	}
	repo := cmp.Or(path.Join(parts[:n]...), ".")
	if keyfiles.Folded(path.Base(repo)) == ".git" {
		return true
	}
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := root.Lstat(path.Join(repo, name)); err != nil {
			return false
		}
	}
	return true
}

// Remove takes a name out, whatever modes the run gave to it and its folder.
func Remove(root *os.Root, name string) error {
	err := root.RemoveAll(name)
	if err == nil {
		return nil
	}
	parts := strings.Split(name, "/")
	for i := range parts { // the folder, and those above it, the highest first
		dir := path.Join(parts[:i]...)
		if dir == "" {
			dir = "."
		}
		info, err := root.Lstat(dir)
		if err == nil && info.IsDir() && root.Chmod(dir, info.Mode().Perm()|0o700) == nil {
			defer func() { _ = root.Chmod(dir, info.Mode().Perm()) }()
		}
	}
	open(root, name)
	return root.RemoveAll(name)
}

// open gives the owner every right to a folder and those below.
func open(root *os.Root, name string) {
	if info, err := root.Lstat(name); err != nil || !info.IsDir() || root.Chmod(name, 0o700) != nil {
		return
	}
	f, err := safefile.OpenFolder(root, name)
	if err != nil {
		return
	}
	all, _ := f.ReadDir(-1)
	f.Close()
	for _, e := range all {
		if e.IsDir() {
			open(root, path.Join(name, e.Name()))
		}
	}
}

func onlySamples(root *os.Root, dir string) bool {
	f, err := safefile.OpenFolder(root, dir)
	if err != nil {
		return false
	}
	defer f.Close()
	all, err := f.ReadDir(-1)
	return err == nil && !slices.ContainsFunc(all, func(e fs.DirEntry) bool {
		return !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), ".sample")
	})
}

// small reads a regular file of bounded size.
func small(root *os.Root, f Found) ([]byte, bool) {
	const most = 64 << 10
	if !f.Mode.IsRegular() {
		return nil, false
	}
	b, err := safefile.ReadIn(root, f.Path, most)
	return b, err == nil
}

// unseen reports a folder in which not all protected names are found.
func unseen(folded string) bool {
	return slices.Contains([]string{modules, "objects", "refs", "logs"}, folded)
}

// within reports whether each path in a pointer file of git leads to a folder below the root, whose own files count.
func within(root *os.Root, f Found, text string) bool {
	from := path.Dir(f.Path)
	if f.Row.Pattern == "git:objects/info/alternates" {
		from = path.Dir(from)
	}
	for line := range strings.Lines(text) {
		to := strings.TrimSpace(line)
		if f.Row.Pattern == ".git" {
			var ok bool
			if to, ok = strings.CutPrefix(to, "gitdir: "); !ok {
				return false
			}
		}
		if filepath.IsAbs(to) {
			rel, err := filepath.Rel(root.Name(), to)
			if err != nil {
				return false
			}
			to = filepath.ToSlash(rel)
		} else {
			to = path.Join(from, to)
		}
		if !filepath.IsLocal(to) ||
			f.Row.Pattern == ".git" && slices.ContainsFunc(strings.Split(keyfiles.Folded(to), "/"), unseen) {
			return false
		}
		if info, err := root.Stat(to); err != nil || !info.IsDir() { // root.Stat refuses links that lead out
			return false
		}
	}
	return text != ""
}
