//go:build linux

package cgroup

import (
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOwnersShareTheProcessors: on one processor, four busy groups of one owner get about as much time as the one group
// of another. Without owners each group gets the same.
func TestOwnersShareTheProcessors(t *testing.T) {
	h := here(t)
	if !h.CPUs() || !h.Times() {
		t.Skip("no cpu controller for this user")
	}
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	one := 0
	for !all.IsSet(one) {
		one++
	}
	spin := "exec taskset -c " + strconv.Itoa(one) + " timeout 2 sh -c 'while :; do :; done'"
	ratio := func(many, single string) float64 {
		var groups []*Group
		for i := range 5 {
			g, err := h.New(NewID(), Limits{Memory: 64 << 20, Pids: 20})
			if err != nil {
				t.Fatal(err)
			}
			owner := many
			if i == 4 {
				owner = single
			}
			idle := h.Busy(g, owner)
			cmd := inGroup(g, spin)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = g.Kill()
				_ = cmd.Wait()
				idle()
				if err := g.Close(); err != nil {
					t.Error(err)
				}
			}()
			groups = append(groups, g)
		}
		time.Sleep(1500 * time.Millisecond)
		sum := time.Duration(0)
		for _, g := range groups[:4] {
			sum += g.CPU()
		}
		return float64(sum) / float64(groups[4].CPU())
	}
	if got := ratio("", ""); got < 2.5 {
		t.Errorf("control: four groups have %.1f times the time of one", got)
	}
	if got := ratio("hostile", "honest"); got > 2 || got < 0.5 {
		t.Errorf("four groups of one owner have %.1f times the time of another's", got)
	}
	if len(owners.busy) > 0 {
		t.Errorf("left: %v", owners.busy)
	}
}

// TestWeights: the weight of an owner's groups follows how many are busy. An idle group has its own again.
func TestWeights(t *testing.T) {
	f := user(t, "cpu memory pids")
	h := f.detect(append([]string{"cpu.weight"}, files2...)...)
	var groups []*Group
	for _, id := range []string{"a", "b", "c"} {
		g, err := h.New(id, Limits{Memory: 1, Pids: 1})
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, g)
	}
	want := func(why string, values ...string) {
		t.Helper()
		for i, g := range groups {
			if got := read(g.dir(cpu), "cpu.weight"); got != values[i] {
				t.Errorf("%s: group %d has %q, want %q", why, i, got, values[i])
			}
		}
	}
	first := h.Busy(groups[0], "ann")
	h.Busy(groups[2], "")()
	want("alone", "", "", "")
	second, other := h.Busy(groups[1], "ann"), h.Busy(groups[2], "bob")
	want("two of one owner", "50", "50", "")
	first()
	want("one is idle", "100", "100", "")
	second()
	other()
}
