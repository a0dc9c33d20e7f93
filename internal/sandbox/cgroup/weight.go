//go:build linux

package cgroup

import (
	"path/filepath"
	"strconv"
	"sync"
)

// The weights of a group beside others, as the kernel sets them: an owner's groups have this much together.
const (
	weight1 = 1024 // cpu.shares, of version 1
	weight2 = 100  // cpu.weight, of version 2
)

// owners divide the processors: the busy groups of one have the weight of one group together. There is one table in a
// process, because all its drivers' groups lie beside each other.
var owners = struct {
	sync.Mutex
	busy map[string]map[*Group]bool
}{busy: map[string]map[*Group]bool{}}

// Busy counts a group as one of its owner's until idle is called. Groups of the owner "" keep the weight of one each. A
// kernel that sets no weights shares out by group.
func (h *Host) Busy(g *Group, owner string) (idle func()) {
	if owner == "" || h.has(cpu) == 0 {
		return func() {}
	}
	owners.Lock()
	defer owners.Unlock()
	if owners.busy[owner] == nil {
		owners.busy[owner] = map[*Group]bool{}
	}
	owners.busy[owner][g] = true
	divide(owner)
	return func() {
		owners.Lock()
		defer owners.Unlock()
		if delete(owners.busy[owner], g); len(owners.busy[owner]) == 0 {
			delete(owners.busy, owner)
		}
		g.weigh(1)
		divide(owner)
	}
}

// divide gives each busy group of an owner its part of the weight. The lock is held.
func divide(owner string) {
	for g := range owners.busy[owner] {
		g.weigh(len(owners.busy[owner]))
	}
}

// weigh gives a group the n-th part of a weight. The lock is held. A failure leaves the group the weight that it has.
func (g *Group) weigh(n int) {
	if max(g.part, 1) == n {
		return
	}
	file, value := "cpu.weight", max(weight2/n, 1)
	if g.h.has(cpu) == 1 {
		file, value = "cpu.shares", max(weight1/n, 2)
	}
	if g.h.sys.write(filepath.Join(g.dir(cpu), file), strconv.Itoa(value)) == nil {
		g.part = n
	}
}
