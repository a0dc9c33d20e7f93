package guest

import (
	_ "embed"
	"fmt"
	"io"
	"strings"
)

//go:embed python/session.py
var pythonSession string

// SessionCommand returns the arguments of a Python that stays and runs cells, without the
// interpreter itself.
func SessionCommand() []string {
	return []string{"-I", "-S", "-c", "import os\n" + pythonShow + pythonSession}
}

// Cell returns what such a Python reads to run code; most is how many bytes of each stream it may
// send back. It refuses code of more than MaxScript bytes.
func Cell(code string, most int64) (io.Reader, error) {
	if len(code) > MaxScript {
		return nil, fmt.Errorf("the code has %d bytes: at most %d run", len(code), MaxScript)
	}
	return strings.NewReader(fmt.Sprintf("%11d %11d\n", len(code), most) + code), nil
}
