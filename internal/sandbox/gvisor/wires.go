//go:build linux && (amd64 || arm64)

package gvisor

import (
	"fmt"
	"os"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/gvisor/job"
)

// wires are waldo's ends of what a command is connected to.
type wires struct {
	stdin            *os.File // nil: there is nothing to read
	fromOut, fromErr *os.File
}

func (w wires) close() {
	for _, f := range []*os.File{w.stdin, w.fromOut, w.fromErr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// connect makes the streams of a command and asks PID 1 to run it. The streams are never files of
// the host's: pipes, or /dev/null where there is nothing to read.
func (b *box) connect(c sandbox.Command) (w wires, err error) {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
		if err != nil {
			w.close()
		}
	}()
	if c.Stdin == nil {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return w, err
		}
		theirs = append(theirs, null)
	} else {
		r, mine, err := os.Pipe()
		if err != nil {
			return w, err
		}
		w.stdin, theirs = mine, append(theirs, r)
	}
	for _, to := range []**os.File{&w.fromOut, &w.fromErr} {
		mine, their, err := os.Pipe()
		if err != nil {
			return w, err
		}
		*to, theirs = mine, append(theirs, their)
	}
	files := theirs
	if c.Bridge != nil {
		files = append(files[:3:3], c.Bridge)
	}
	dir := c.Dir
	if dir == "" {
		dir = "/workspace"
	}
	ask := job.Run{Argv: c.Argv, Env: c.Env, Dir: dir, Bridge: c.Bridge != nil}
	if err := b.conn.Send(job.Ask{Run: &ask}, files...); err != nil {
		return w, fmt.Errorf("asking for the command: %w", err)
	}
	return w, nil
}
