package main

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"os/exec"
	"strings"
	"time"
)

// selection selects the guards of a run.
type selection struct {
	words string        // only guards whose name or file holds them
	since string        // a revision: guards changed after it come first
	share int           // with since: one of this many unchanged guards; 0: no unchanged guards
	limit time.Duration // no guard starts after this time; 0: unlimited
}

// choose returns the guards to try, in order: new blocks of the list, then guards of
// changed files, then a share of the others. seed, the tree's commit, rotates each of the three.
func (s selection) choose(guards []guard, before map[string]bool, changed map[string]bool, seed string) []guard {
	var fresh, touched, rest []guard
	for _, g := range guards {
		switch {
		case s.words != "" && !strings.Contains(g.file, s.words) && !strings.Contains(g.name, s.words):
		case s.since == "" || !before[g.name]:
			fresh = append(fresh, g)
		case changed[g.file]:
			touched = append(touched, g)
		case s.share > 0 && (number(g.name)+number(seed))%uint64(s.share) == 0:
			rest = append(rest, g)
		}
	}
	if s.since != "" {
		rotate(fresh, seed)
	}
	rotate(touched, seed)
	rotate(rest, seed)
	return append(append(fresh, touched...), rest...)
}

// rotate starts the guards at a position derived from the seed, so that a time limit cuts different guards each time.
func rotate(guards []guard, seed string) {
	if len(guards) == 0 {
		return
	}
	at := int(number(seed) % uint64(len(guards)))
	copy(guards, append(append([]guard{}, guards[at:]...), guards[:at]...))
}

func number(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}

// history reads the names of the list as it was at a revision, the files that changed after it, and the
// commit of the tree. A revision that this checkout does not have is an error.
func history(since string) (before map[string]bool, changed map[string]bool, seed string, err error) {
	old, err := git("show", since+":"+list)
	if err != nil {
		return nil, nil, "", err
	}
	guards, err := parse(bytes.NewReader(old), since+":"+list)
	if err != nil {
		return nil, nil, "", err
	}
	before = map[string]bool{}
	for _, g := range guards {
		before[g.name] = true
	}
	names, err := git("diff", "--name-only", since)
	if err != nil {
		return nil, nil, "", err
	}
	changed = map[string]bool{}
	for _, name := range strings.Fields(string(names)) {
		changed[name] = true
	}
	head, err := git("rev-parse", "HEAD")
	return before, changed, string(head), err
}

func git(args ...string) ([]byte, error) {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}
