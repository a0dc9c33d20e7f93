package main

import (
	"fmt"
	"io"
	"runtime/debug"

	"waldo/internal/redact"
)

// hiding takes known secrets out of what waldo itself says: errors, lines of its log, a crash. Each
// Write is whole.
type hiding struct {
	w     io.Writer
	known *redact.Registry
}

func (h hiding) Write(b []byte) (int, error) {
	if _, err := io.WriteString(h.w, h.known.Text(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// crashed is what is said of a fault of waldo's own. It has the exit code of one.
func crashed(w io.Writer, fault any) int {
	fmt.Fprintf(w, "waldo: a fault of waldo's own: %v\n%s", fault, debug.Stack())
	return exitFailed
}
