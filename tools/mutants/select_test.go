package main

import (
	"slices"
	"strings"
	"testing"
)

func listed(guards []guard) string {
	var out []string
	for _, g := range guards {
		out = append(out, g.name)
	}
	return strings.Join(out, " ")
}

// TestChoose: new blocks first, then guards of changed files, then a share of the others that
// comes round to every guard.
func TestChoose(t *testing.T) {
	var all []guard
	before, changed := map[string]bool{}, map[string]bool{"a.go": true}
	for _, name := range strings.Fields("new old touched same1 same2 same3 same4 same5 same6 same7 same8") {
		g := guard{line: len(all) + 1, name: name, file: "b.go"}
		if name == "touched" {
			g.file = "a.go"
		}
		all = append(all, g)
		if name != "new" {
			before[g.name] = true
		}
	}
	if got := (selection{}).choose(all, nil, nil, ""); len(got) != len(all) {
		t.Errorf("control: without a revision %d of %d guards are chosen", len(got), len(all))
	}
	if got := listed(selection{since: "x"}.choose(all, before, changed, "s")); got != "new touched" {
		t.Errorf("without a share: %q", got)
	}
	seen := map[string]bool{}
	for _, seed := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		got := selection{since: "x", share: 3}.choose(all, before, changed, seed)
		if len(got) < 2 || got[0].name != "new" || got[1].name != "touched" || len(got) == len(all) {
			t.Errorf("seed %s: %q", seed, listed(got))
		}
		for _, g := range got {
			seen[g.name] = true
		}
	}
	if len(seen) != len(all) {
		t.Errorf("the shares of 26 commits hold %d of %d guards", len(seen), len(all))
	}
	if got := listed(selection{words: "same3"}.choose(all, nil, nil, "")); got != "same3" {
		t.Errorf("by name: %q", got)
	}
	five := slices.Clone(all[3:8])
	rotate(five, "seed")
	if slices.Equal(five, all[3:8]) && number("seed")%5 != 0 || len(five) != 5 {
		t.Errorf("rotated: %q", listed(five))
	}
}
