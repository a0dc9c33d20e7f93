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

// Freeze stops every process of the group where it stands, or lets all go on, and returns when that
// is so. It needs version 2, also where that has no controllers. A frozen process can be killed.
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

// freezable gives a group that has none its version 2 group, and takes all its processes there: those of
// whom a fork is under way are looked for until there are no more.
func (g *Group) freezable() error {
	if g.unified != "" {
		return nil
	}
	if g.h.unified == "" {
		return errors.New("cgroup: nothing here can freeze processes: there is no version 2 hierarchy")
	}
	if err := g.unify(); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	for more := true; more; {
		more = false
		there := strings.Fields(read(g.unified, "cgroup.procs"))
		for _, pid := range strings.Fields(read(g.v1[pids], "cgroup.procs")) {
			n, err := strconv.Atoi(pid)
			if err != nil || slices.Contains(there, pid) {
				continue
			}
			more = true
			if err := g.JoinUnified(n); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return nil
}
