//go:build linux

package procstat

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
