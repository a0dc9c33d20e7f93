//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Settle makes a group of version 2 that systemd delegated (Delegate=yes) ready for the groups of runs: this process
// moves into a group below, and those beside it get the controllers that there are. The kernel gives none to
// the children of a group that holds a process. A group that is not marked as delegated, or that holds another process,
// is left as it is.
func Settle() error { return settle(realSystem(), delegated) }

// own is the name of the group of waldo itself.
const own = "waldo-serve"

// delegated reports whether systemd marked a group as this user's.
func delegated(dir string) bool {
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		b := make([]byte, 8)
		if n, err := unix.Getxattr(dir, name, b); err == nil && string(b[:n]) == "1" {
			return true
		}
	}
	return false
}

func settle(s system, delegated func(dir string) bool) error {
	groups, err := ownGroups(s.proc)
	if err != nil {
		return nil //nolint:nilerr // a machine without control groups
	}
	mounts, err := mounted(s.proc)
	if err != nil {
		return nil //nolint:nilerr // the same
	}
	i := slices.IndexFunc(mounts, func(m mount) bool { return m.kind == "cgroup2" })
	if i < 0 {
		return nil
	}
	dir := mounts[i].path(groups[""])
	if !delegated(dir) || strings.TrimSpace(read(dir, "cgroup.procs")) != fmt.Sprint(os.Getpid()) {
		return nil
	}
	below := filepath.Join(dir, own)
	if err := s.mkdir(below); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("the delegated control group: %w", err)
	}
	if err := s.write(filepath.Join(below, "cgroup.procs"), "0"); err != nil {
		return fmt.Errorf("moving into %s: %w", below, err)
	}
	for _, c := range strings.Fields(read(dir, "cgroup.controllers")) {
		if !slices.Contains([]string{memory, pids, cpu, "io"}, c) {
			continue
		}
		if err := s.write(filepath.Join(dir, "cgroup.subtree_control"), "+"+c); err != nil {
			return fmt.Errorf("the controller %s of the delegated control group: %w", c, err)
		}
	}
	return nil
}
