package exitcode

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"syscall"

	"waldo/internal/cli/manual"
	"waldo/internal/model/display"
)

// AsksJSON reports whether --json is among waldo's own arguments.
func AsksJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.Contains(args, "--json")
}

// Report prints an error, as text or JSON, and returns its exit code.
func Report(w io.Writer, asJSON bool, err error) int {
	if err == nil {
		return 0
	}
	e := Of(err)
	if e == nil {
		e = &Exit{Code: Failed, Err: err}
	}
	hint := e.Hint
	if h := hinted(nil); hint == "" && errors.As(err, &h) {
		hint = h.Hint()
	}
	if hint == "" && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) {
		hint = "free space on the disk"
	}
	said := manual.WithoutCalls(e.Error())
	if asJSON && said != "" {
		b, _ := json.Marshal(Failure{said, hint, e.Code}) // of two texts and a number
		_, _ = w.Write(append(display.JSON(b), '\n'))
		return e.Code
	}
	if text := display.Lines(said); text != "" { // it can contain names from outside
		display.Fprintf(w, "waldo: %s\n", text)
	}
	if hint != "" {
		display.Fprintf(w, "hint: %s\n", display.Lines(hint))
	}
	return e.Code
}

// Failure is an error as --json prints it: one line on standard error.
type Failure struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
	Code  int    `json:"code"`
}
