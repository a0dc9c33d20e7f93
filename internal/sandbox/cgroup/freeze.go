//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Freeze stops every process of the group, or lets all continue, and returns when the kernel reports it. It
// needs a version 2 hierarchy, with or without controllers. A frozen process can be killed.
func (g *Group) Freeze(frozen bool) error {
	if err := g.freezable(); err != nil {
		return err
	}
	value := "0"
	if frozen {
		value = "1"
	}
	if err := g.h.sys.write(filepath.Join(g.unified, "cgroup.freeze"), value); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if field(read(g.unified, "cgroup.events"), "frozen") == number(value) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("cgroup: cgroup.freeze %s: not so after %v", value, patience)
		}
	}
}

// inVain is for how long a group is emptied into another that is filled as fast.
const inVain = 2 * time.Second

// freezable gives a group that has none its version 2 group, and takes all its processes there. It fails
// where they are made faster than they can be moved.
func (g *Group) freezable() error {
	if g.unified != "" && !g.moving {
		return nil
	}
	if g.h.unified == "" {
		return errors.New("cgroup: cannot freeze processes: no version 2 hierarchy")
	}
	g.moving = true
	if g.unified == "" {
		if err := g.unify(); err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	for end, looks := time.Now().Add(inVain), 0; ; looks++ {
		left := g.unmoved()
		if len(left) == 0 {
			g.moving = false
			return nil
		}
		if looks > 100 && time.Now().After(end) { // waldo may have had no turn for as long
			return fmt.Errorf("cgroup: its processes are made faster than they can be stopped, for %v", inVain)
		}
		for _, pid := range left {
			if err := g.JoinUnified(pid); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
}

// unmoved lists the processes that could be outside the version 2 group. A process that is inside makes its
// children inside too. A child can have ended before, or been made after, one of the two reads.
func (g *Group) unmoved() (left []int) {
	there := strings.Fields(read(g.unified, "cgroup.procs"))
	all := strings.Fields(read(g.v1[pids], "cgroup.procs"))
	there = append(there, strings.Fields(read(g.unified, "cgroup.procs"))...)
	for _, pid := range all {
		if n, err := strconv.Atoi(pid); err == nil && !slices.Contains(there, pid) {
			left = append(left, n)
		}
	}
	return left
}
