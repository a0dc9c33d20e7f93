//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSettle: only a group that is marked as delegated, and that holds no other process, is made ready.
func TestSettle(t *testing.T) {
	me := fmt.Sprint(os.Getpid())
	for _, row := range []struct {
		name, procs string
		marked      bool
		want        []string
	}{
		{"delegated", me, true, []string{
			"system.slice/waldo.service/waldo-serve/cgroup.procs 0", "system.slice/waldo.service/cgroup.subtree_control +cpu",
			"system.slice/waldo.service/cgroup.subtree_control +io", "system.slice/waldo.service/cgroup.subtree_control +memory",
			"system.slice/waldo.service/cgroup.subtree_control +pids",
		}},
		{"not delegated", me, false, nil},
		{"with another process", me + "\n1", true, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := newFake(t, only2, "0::/system.slice/waldo.service\n")
			f.file("cg/system.slice/waldo.service/cgroup.procs", row.procs+"\n")
			f.file("cg/system.slice/waldo.service/cgroup.controllers", "cpuset cpu io memory pids")
			var wrote []string
			s := system{proc: f.path("proc"), mkdir: func(p string) error { return os.Mkdir(p, 0o755) },
				write: func(path, value string) error {
					wrote = append(wrote, strings.TrimPrefix(path, f.path("cg")+"/")+" "+value)
					return nil
				}}
			if err := settle(s, func(dir string) bool { return row.marked && filepath.Base(dir) == "waldo.service" }); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(wrote, row.want) {
				t.Errorf("wrote %q, want %q", wrote, row.want)
			}
		})
	}
}
