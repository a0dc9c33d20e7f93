package exitcode

import (
	"io"
	"runtime/debug"

	"waldo/internal/core/redact"
	"waldo/internal/model/display"
)

// Hiding masks known secrets in the output of waldo itself: errors, log lines, a crash. Each Write must be a whole
// message.
type Hiding struct {
	W     io.Writer
	Known *redact.Registry
}

func (h Hiding) Write(b []byte) (int, error) {
	if _, err := io.WriteString(h.W, h.Known.Text(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Crashed prints a fault of waldo itself and returns its exit code.
func Crashed(w io.Writer, fault any) int {
	display.Fprintf(w, "waldo: a fault of waldo's own: %v\n%s\n", fault, display.Lines(string(debug.Stack())))
	return Failed
}
