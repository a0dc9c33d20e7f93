//go:build linux

package prestart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/stdio"
	"waldo/internal/sandbox/volume"
)

// Waiting is a command that was started before its job was there.
type Waiting struct {
	sandbox.Prestart
	stdio.Pipes
	State  volume.State // of the exported places, until seeds come into them
	bridge *os.File     // waldo's end, until it is taken
}

// Command returns the command to start. The caller owns its Bridge and must close it.
func (w *Waiting) Command() (sandbox.Command, error) {
	c := sandbox.Command{Argv: w.Argv, Env: w.Env, Dir: w.Dir, Stdin: bytes.NewReader(nil)} // that there will be one
	if err := c.Validate(); err != nil || !w.Bridge {
		return c, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return c, fmt.Errorf("socketpair: %w", err)
	}
	w.bridge, c.Bridge = os.NewFile(uintptr(pair[0]), "bridge"), os.NewFile(uintptr(pair[1]), "bridge")
	return c, nil
}

// TakeBridge returns waldo's end of the command's bridge, once.
func (w *Waiting) TakeBridge() *os.File {
	f := w.bridge
	w.bridge = nil
	return f
}

// Close closes what is open of it.
func (w *Waiting) Close() {
	w.Pipes.Close()
	if w.bridge != nil {
		_ = w.bridge.Close()
	}
}

// Matches reports whether c is the command that waits: same Argv, Env and Dir, and a Stdin that begins with
// Head. On a match it consumes the head from c.Stdin and gives up the bridge. No match after the bridge was
// taken is an error.
func (w *Waiting) Matches(c *sandbox.Command) (bool, error) {
	if wants(c, w.Prestart, w.bridge) {
		w.bridge = nil // the bridge now belongs to the caller
		return true, nil
	}
	if w.Bridge && w.bridge == nil {
		return false, errors.New("the bridge was taken for another command than this one")
	}
	return false, nil
}

func wants(c *sandbox.Command, a sandbox.Prestart, bridge *os.File) bool {
	if !slices.Equal(c.Argv, a.Argv) || !slices.Equal(c.Env, a.Env) || c.Dir != a.Dir || c.Serve || c.Stdin == nil {
		return false
	}
	if c.Bridge != nil || a.Bridge && bridge != nil { // one would be without the other
		return false
	}
	if in, ok := c.Stdin.(sandbox.Prestarted); ok && in.Skip(a.Prelude) {
		return true
	}
	head := make([]byte, len(a.Prelude))
	n, err := io.ReadFull(c.Stdin, head)
	if err != nil || string(head) != a.Prelude {
		c.Stdin = io.MultiReader(bytes.NewReader(head[:n]), c.Stdin)
		return false
	}
	return true
}

// Assign gives a sandbox that was made ahead to one job: its profile gets the job's name and limits, and its
// places what the job starts with. It reports whether that is anything.
func Assign(own *sandbox.Profile, job sandbox.Profile, places []volume.Volume, uid, gid int) (seeded bool, err error) {
	if len(job.Tmpfs) != len(own.Tmpfs) {
		return false, fmt.Errorf("%d writable places, and the sandbox has %d", len(job.Tmpfs), len(own.Tmpfs))
	}
	own.ID, own.Limits.Wall, own.Limits.Output = job.ID, job.Limits.Wall, job.Limits.Output
	for _, t := range job.Tmpfs {
		i := slices.IndexFunc(places, func(own volume.Volume) bool { return own.Target == t.Target })
		if i < 0 {
			return false, fmt.Errorf("%s is not a volume of the sandbox", t.Target)
		}
		places[i].Seed, places[i].Only, places[i].Owner = t.Seed, t.Only, job.Owner
		if err := places[i].Fill(uid, gid); err != nil {
			return false, err
		}
		seeded = seeded || t.Seed != ""
	}
	return seeded, nil
}
