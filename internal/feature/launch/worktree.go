package launch

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/contract"
)

// withRepository mounts the repository of a linked working tree beside it, unless the configuration does.
func (p *plan) withRepository(m files.Machine) {
	at := contract.Position{File: filepath.Join(p.project, ".git")}
	common := repository(p.project)
	if common == "" || slices.ContainsFunc(p.contract.Mounts, func(m contract.Mount) bool {
		return contract.Within(common, m.Target) || contract.Within(m.Target, common)
	}) {
		return
	}
	if real, err := m.Place(at, common); err != nil || real != common {
		return // git finds no repository
	}
	p.repository = common
	p.contract.Mounts = append(p.contract.Mounts, contract.Mount{Target: common, From: common, Writable: true,
		At: p.contract.At})
}

// repository returns the repository of a linked working tree, where each leads to the other: a file .git alone can name
// any repository of the person's. Empty: it is none.
func repository(project string) string {
	pointer := filepath.Join(project, ".git")
	admin, ok := strings.CutPrefix(pointerIn(pointer), "gitdir: ")
	if admin = from(project, admin); !ok || filepath.Base(filepath.Dir(admin)) != "worktrees" {
		return ""
	}
	common := filepath.Dir(filepath.Dir(admin))
	if real, err := filepath.EvalSymlinks(admin); err != nil || real != admin ||
		from(admin, pointerIn(filepath.Join(admin, "gitdir"))) != pointer ||
		from(admin, pointerIn(filepath.Join(admin, "commondir"))) != common {
		return ""
	}
	return common
}

// from returns the path that a pointer in a folder leads to.
func from(dir, to string) string {
	if filepath.IsAbs(to) {
		return filepath.Clean(to)
	}
	return filepath.Join(dir, cmp.Or(to, "."))
}

// pointerIn reads a file that holds one path; empty: it is none.
func pointerIn(name string) string {
	const most = 8 << 10
	info, err := os.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > most {
		return ""
	}
	b, _ := os.ReadFile(name) // of one that cannot be read: empty
	return strings.TrimSpace(string(b))
}
