package main

import (
	"io"
	"runtime/debug"

	"waldo/internal/core/redact"
	"waldo/internal/model/display"
)

// hiding masks known secrets in the output of waldo itself: errors, log lines, a crash. Each Write must be a whole
// message.
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

// logged writes each Write, a whole line, to the log.
type logged struct{ w io.Writer }

func (l logged) Write(b []byte) (int, error) {
	if _, err := io.WriteString(l.w, string(display.Lines(string(b)))+"\n"); err != nil {
		return 0, err
	}
	return len(b), nil
}

// crashed prints a fault of waldo itself and returns its exit code.
func crashed(w io.Writer, fault any) int {
	display.Fprintf(w, "waldo: a fault of waldo's own: %v\n%s\n", fault, display.Lines(string(debug.Stack())))
	return exitFailed
}
