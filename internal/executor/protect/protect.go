// Package protect knows the names in a person's folder that an agent must not change or read: what runs later outside
// of its sandbox, what widens its reach, and what holds keys. table.txt lists them, with a reason each.
package protect

import (
	_ "embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"waldo/internal/executor/keyfiles"
)

// Kind is how a name is treated. The zero kind seals.
type Kind uint8

// The kinds of table.txt.
const (
	Seal Kind = iota // read-only where it exists, and taken out where it appears
	Hide             // shown as empty
	Key              // Seal, and Hide where it holds a password
	Show             // it stays; the facts mark it
)

var kinds = map[string]Kind{"seal": Seal, "hide": Hide, "key": Key, "show": Show}

// Row is a line of the table.
type Row struct {
	Pattern string // as written
	Kind    Kind
	Reason  string
	git     bool     // within a repository alone
	parts   []string // folded names
}

//go:embed table.txt
var text string

var table = sync.OnceValue(func() []Row { return mustTable(text) })

// Table returns the rows.
func Table() []Row { return slices.Clone(table()) }

func mustTable(text string) (rows []Row) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		kind, known := kinds[f[1]]
		if len(f) < 3 || !known {
			panic("protect: table.txt: " + line)
		}
		r, err := newRow(f[0], kind, strings.Join(f[2:], " "))
		if err != nil {
			panic(err)
		}
		rows = append(rows, r)
	}
	return rows
}

func newRow(pattern string, kind Kind, reason string) (Row, error) {
	name, git := strings.CutPrefix(pattern, "git:")
	r := Row{Pattern: pattern, Kind: kind, Reason: reason, git: git}
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		if _, err := path.Match(part, ""); err != nil || part == "" || part == "." || part == ".." {
			return r, fmt.Errorf("%q is no pattern of names: as in .env, *.pem or config/deploy.yaml", pattern)
		}
		r.parts = append(r.parts, keyfiles.Folded(part))
	}
	return r, nil
}

// Rules are the rows that hold in one folder.
type Rules struct {
	rows  []Row
	byEnd map[string][]int // of the rows whose last name is a text: their numbers
	globs []glob           // of the others
	base  []string         // folded names of the folder's own path: a name can begin there, as tools in tools/bazel
	inGit []string         // of base, those below the repository that it is in; nil: it is in none
}

// glob is a row whose last name is a pattern, with the texts before its first and after its last star.
type glob struct {
	row        int
	start, end string
}

// New returns the rules of the table, with patterns that the operator adds, and without those that the operator takes
// out. A pattern of unprotect must be a pattern of the table.
func New(protect, unprotect []string) (Rules, error) {
	r := Rules{rows: slices.Clone(table())}
	for _, p := range unprotect {
		n := len(r.rows)
		r.rows = slices.DeleteFunc(r.rows, func(row Row) bool { return row.Pattern == p })
		if len(r.rows) == n {
			return r, fmt.Errorf("unprotect: %q is not in the table of protected names (docs/inside.md)", p)
		}
	}
	for _, p := range protect {
		row, err := newRow(p, Seal, "the operator protects it")
		if err != nil {
			return r, fmt.Errorf("protect: %w", err)
		}
		r.rows = append(r.rows, row)
	}
	r.byEnd = map[string][]int{}
	for i, row := range r.rows {
		if last := row.parts[len(row.parts)-1]; strings.ContainsAny(last, "*?[\\") {
			g := glob{row: i}
			if from, to := strings.Index(last, "*"), strings.LastIndex(last, "*"); from >= 0 && !strings.ContainsAny(last, "?[\\") {
				g.start, g.end = last[:from], last[to+1:]
			}
			r.globs = append(r.globs, g)
		} else {
			r.byEnd[last] = append(r.byEnd[last], i)
		}
	}
	return r, nil
}

// At returns the rules for a folder at an absolute path.
func (r Rules) At(dir string) Rules {
	dir = filepath.ToSlash(filepath.Clean(dir))
	r.base, r.inGit = nil, nil
	for at := dir; at != path.Dir(at); at = path.Dir(at) {
		r.base = append(r.base, keyfiles.Folded(path.Base(at)))
		if above := path.Dir(at); r.inGit == nil && (keyfiles.Folded(path.Base(above)) == ".git" || holdsRepository(above)) {
			r.inGit = slices.Clone(r.base)
		}
	}
	slices.Reverse(r.base)
	slices.Reverse(r.inGit)
	return r
}

// holdsRepository reports whether git takes a folder of this machine for a repository, by what it holds.
func holdsRepository(dir string) bool {
	all, _ := os.ReadDir(dir) // of one that cannot be read, nothing is known
	return isGit(nil, all)
}

// match returns the row of a path, as its folded names: those below the folder, and those below the repository, if it
// is in one.
func (r Rules) match(names, inGit []string) (Row, bool) {
	last := names[len(names)-1]
	for _, i := range r.byEnd[last] {
		if r.is(i, names, inGit) {
			return r.rows[i], true
		}
	}
	for _, g := range r.globs {
		if strings.HasPrefix(last, g.start) && strings.HasSuffix(last, g.end) && r.is(g.row, names, inGit) {
			return r.rows[g.row], true
		}
	}
	return Row{}, false
}

func (r Rules) is(i int, names, inGit []string) bool {
	row := &r.rows[i]
	if row.git {
		if names = inGit; len(names) != len(row.parts) {
			return false
		}
	}
	return len(names) >= len(row.parts) && matches(row.parts, names[len(names)-len(row.parts):]) && !template(*row, names)
}

// Name returns the row of a path below a folder, or of a folder above it. Below it, repositories are known by the name
// .git alone.
func (r Rules) Name(name string) (Row, bool) {
	names, inGit := slices.Clone(r.base), slices.Clone(r.inGit)
	if len(names) > 0 && names[len(names)-1] == ".git" {
		inGit = []string{}
	}
	for part := range strings.SplitSeq(name, "/") {
		part = keyfiles.Folded(part)
		names = append(names, part)
		if inGit != nil {
			inGit = append(inGit, part)
		}
		if row, ok := r.match(names, inGit); ok && row.Pattern != ".git" {
			return row, true
		}
		if part == ".git" {
			inGit = []string{}
		}
	}
	return Row{}, false
}

// template reports a file of variables without values, as .env.example.
func template(row Row, names []string) bool {
	last := names[len(names)-1]
	return row.Pattern == ".env.*" && !keyfiles.Is(last)
}

func matches(patterns, names []string) bool {
	for i, p := range patterns {
		if ok, _ := path.Match(p, names[i]); !ok {
			return false
		}
	}
	return true
}
