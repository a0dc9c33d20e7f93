//go:build linux && (amd64 || arm64)

package gvisor

import (
	"fmt"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/gvisor/job"
	"waldo/internal/sandbox/stdio"
)

// connect makes the streams of a command and asks PID 1 to run it.
func (b *instance) connect(c sandbox.Command) (stdio.Pipes, error) {
	if err := sandbox.NoTTY(c); err != nil {
		return stdio.Pipes{Out: -1, Err: -1}, err
	}
	w, files, err := stdio.Connect(c)
	if err != nil {
		return w, fmt.Errorf("the streams: %w", err)
	}
	for _, f := range files {
		defer f.Close()
	}
	if c.Bridge != nil {
		files = append(files, c.Bridge)
	}
	dir := c.Dir
	if dir == "" {
		dir = "/workspace"
	}
	ask := job.Run{Argv: c.Argv, Env: c.Env, Dir: dir, Bridge: c.Bridge != nil}
	if err := b.conn.Send(job.Ask{Run: &ask}, files...); err != nil {
		w.Close()
		return w, fmt.Errorf("asking for the command: %w", err)
	}
	return w, nil
}
