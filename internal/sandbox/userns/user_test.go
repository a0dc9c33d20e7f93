//go:build linux

package userns

import (
	"fmt"
	"strings"
	"testing"
)

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
			if _, err := fmt.Sscan(line, &inside, &outside, &count); err == nil && inside <= int64(id) &&
				int64(id)-inside < count {
				return
			}
		}
		t.Errorf("picked %d, which %q does not map", id, idMap)
	})
}
