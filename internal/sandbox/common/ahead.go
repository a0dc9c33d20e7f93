//go:build linux

package common

import (
	"bytes"
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
