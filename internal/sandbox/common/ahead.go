//go:build linux

package common

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"

	"waldo/internal/sandbox"
)

// Wants reports whether the command that was started ahead is the one that is asked for, head and all.
// The head is read off its standard input. The bridge is waldo's end, until somebody has taken it.
func Wants(c *sandbox.Command, a sandbox.Ahead, bridge *os.File) bool {
	if !slices.Equal(c.Argv, a.Argv) || !slices.Equal(c.Env, a.Env) || c.Dir != a.Dir || c.Serve || c.Stdin == nil {
		return false
	}
	if c.Bridge != nil || a.Bridge && bridge != nil { // one would be without the other
		return false
	}
	head := make([]byte, len(a.Head))
	n, err := io.ReadFull(c.Stdin, head)
	if err != nil || string(head) != a.Head {
		c.Stdin = io.MultiReader(bytes.NewReader(head[:n]), c.Stdin)
		return false
	}
	return true
}

// Adopt gives a box that was made ahead to one job: its profile gets the job's name and limits, and its
// places what the job starts with. It reports whether that is anything.
func Adopt(own *sandbox.Profile, job sandbox.Profile, places []Place, uid, gid int) (seeded bool, err error) {
	if len(job.Tmpfs) != len(own.Tmpfs) {
		return false, fmt.Errorf("%d writable places, and the box has %d", len(job.Tmpfs), len(own.Tmpfs))
	}
	own.ID, own.Limits.Wall, own.Limits.Output = job.ID, job.Limits.Wall, job.Limits.Output
	for _, t := range job.Tmpfs {
		i := slices.IndexFunc(places, func(own Place) bool { return own.Target == t.Target })
		if i < 0 {
			return false, fmt.Errorf("%s is no place of the box", t.Target)
		}
		places[i].Seed = t.Seed
		if err := places[i].Fill(uid, gid); err != nil {
			return false, err
		}
		seeded = seeded || t.Seed != ""
	}
	return seeded, nil
}
