package sandboxflags

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"waldo/internal/cli/exitcode"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
)

// AddMounts adds the flags of mounts alone.
func (b *Flags) AddMounts(c *cobra.Command) {
	c.Flags().StringArrayVar(&b.mounts, "mount", nil,
		"show `SRC[:DST][:ro|rw]`, a file or folder, at DST or its own path; rw: a live folder, in which names that run later "+
			"outside stay read-only (docs/inside.md)")
	c.Flags().StringVar(&b.Changes, "changes", "",
		"`MODE` of writes to rw mounts: keep (with copies for waldo changes --undo), review (they go aside until waldo changes "+
			"apply) or discard; without it they are kept, and listed")
}

// RefusedMounts returns an error for a mount or a mode of changes that cannot be read.
func (b *Flags) RefusedMounts() error {
	if !slices.Contains([]string{"", "keep", "review", "discard"}, b.Changes) {
		return exitcode.Mistake("keep, review or discard", "--changes %s is not a mode", b.Changes)
	}
	var before []call.Mount
	for _, text := range b.mounts {
		m, err := Mount(text)
		if err != nil {
			return exitcode.Mistake("as in --mount .:rw, or --mount ./data:/data", "--mount %s: %v", text, err)
		}
		for _, o := range before {
			if contract.Within(m.Target, o.Target) || contract.Within(o.Target, m.Target) {
				return exitcode.Mistake("give one another place, as in --mount "+m.Source+":/other",
					"mounts.nested: %s and %s lie within each other", o.Target, m.Target)
			}
		}
		before = append(before, m)
	}
	return nil
}

// Mount reads SRC[:DST][:ro|rw]: a source of this machine, its path in the sandbox, and how it is shown. The default is
// the source's own path, read-only.
func Mount(text string) (call.Mount, error) {
	parts := strings.Split(text, ":")
	m := call.Mount{Source: parts[0]}
	if rest := parts[1:]; len(rest) > 0 && (rest[len(rest)-1] == "ro" || rest[len(rest)-1] == "rw") {
		m.Writable = rest[len(rest)-1] == "rw"
		parts = parts[:len(parts)-1]
	}
	if m.Source == "" || len(parts) > 2 {
		return m, errors.New("want SRC[:DST][:ro|rw]")
	}
	source, err := filepath.Abs(m.Source)
	if err != nil {
		return m, err
	}
	if _, err := os.Stat(source); err != nil {
		return m, errors.New("no such file or folder")
	}
	// its own path is the one without links, at which programs know it
	if m.Source, err = filepath.EvalSymlinks(source); err != nil {
		return m, err
	}
	m.Target = m.Source
	if len(parts) == 2 {
		m.Target = parts[1]
	}
	if !strings.HasPrefix(m.Target, "/") || filepath.Clean(m.Target) != m.Target {
		return m, errors.New("DST must be an absolute path in its shortest form")
	}
	return m, nil
}

// Mounts returns the mounts of the flags, which Refused has checked.
func (b *Flags) Mounts() (out []call.Mount) {
	for _, text := range b.mounts {
		if m, err := Mount(text); err == nil {
			out = append(out, m)
		}
	}
	return out
}
