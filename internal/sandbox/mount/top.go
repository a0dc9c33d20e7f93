//go:build linux

package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"waldo/internal/sandbox"
)

// ours are the names at the top of a sandbox that no template fills.
var ours = []string{"proc", "dev", "sys", "tmp", "run", "workspace", "old"}

// MaxTop is how many folders a template may have at its top: each is a mount of its own.
const MaxTop = 24

// Link is a symbolic link at the top of a root. It is made again in the sandbox, and never followed here.
type Link struct{ Name, Target string }

// Top reads what is at the top of another root: its folders are shown in the sandbox, each at its own name, and
// its links are made again. Files there are left out.
func Top(t sandbox.Template) (folders []sandbox.Mount, links []Link, err error) {
	if t.Dir == "" {
		return nil, nil, nil
	}
	entries, err := os.ReadDir(t.Dir)
	if err != nil {
		return nil, nil, fmt.Errorf("template %s: %w", t.Name, err)
	}
	for _, e := range entries {
		at := filepath.Join(t.Dir, e.Name())
		switch {
		case slices.Contains(ours, e.Name()):
		case e.Type() == os.ModeSymlink:
			target, err := os.Readlink(at)
			if err != nil {
				return nil, nil, fmt.Errorf("template %s: %w", t.Name, err)
			}
			links = append(links, Link{"/" + e.Name(), target})
		case e.IsDir():
			folders = append(folders, sandbox.Mount{Source: at, Target: "/" + e.Name()})
		}
	}
	if len(folders)+len(links) > MaxTop {
		return nil, nil, fmt.Errorf("template %s: %d folders at its top; at most %d", t.Name, len(folders)+len(links), MaxTop)
	}
	return folders, links, nil
}
