//go:build linux

package common

import (
	"fmt"
	"strings"
	"testing"
)

// FuzzParseStat: a program chooses its name, which must not pass for times.
func FuzzParseStat(f *testing.F) {
	f.Add("1 (a) b) S 1 1 1 0 -1 4194560 1 1 1 1 ", uint32(3), uint32(4))
	f.Add("1 (sh) 9 9 9) S 1 1 1 0 -1 4194560 1 1 1 1 ", uint32(0), uint32(1))
	f.Fuzz(func(t *testing.T, name string, ticks, threads uint32) {
		line := fmt.Sprintf("1 (%s) S 1 1 1 0 -1 4194560 1 1 1 1 %d 0 0 0 20 0 %d 0 5\n",
			strings.ReplaceAll(name, "\n", ""), ticks, threads)
		s, err := parseStat(line)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if s.Pids != int64(threads) || s.CPU.Milliseconds() != int64(ticks)*10 {
			t.Errorf("%q: %+v", line, s)
		}
		_, _ = parseStat(name)
	})
}

// FuzzPick: a user that is picked is one of the map's, and never root.
func FuzzPick(f *testing.F) {
	f.Add("         0          0 4294967295\n", uint32(5))
	f.Add("0 1000 1\n1 100000 65536\n", uint32(1<<27-1))
	f.Add("0 0 1\n", uint32(0))
	f.Add("x\n", uint32(0))
	f.Add("0 0 -5\n", uint32(0))
	f.Fuzz(func(t *testing.T, idMap string, n uint32) {
		id, err := pick(idMap, int(n&uidBits))
		if err != nil {
			return
		}
		if id <= 0 {
			t.Fatalf("picked %d", id)
		}
		for line := range strings.Lines(idMap) {
			var inside, outside, count int64
			if _, err := fmt.Sscan(line, &inside, &outside, &count); err == nil && inside <= int64(id) && int64(id)-inside < count {
				return
			}
		}
		t.Errorf("picked %d, which %q does not map", id, idMap)
	})
}
