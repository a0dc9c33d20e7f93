//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// Freeze stops every process of the group where it stands, or lets all go on, and returns when that
// is so. It needs version 2, also where that has no controllers. A frozen process can be killed.
func (g *Group) Freeze(frozen bool) error {
	if g.unified == "" {
		return errors.New("cgroup: nothing here can freeze processes: there is no version 2 hierarchy")
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
