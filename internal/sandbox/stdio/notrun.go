package stdio

import (
	"errors"
	"os"

	"waldo/internal/model/facts"
)

// NotRun returns one line that says why a command was not run. The command's name is quoted where it holds what a
// terminal would obey: an agent chose it.
func NotRun(err error) string {
	var at *os.PathError
	if errors.As(err, &at) {
		op := at.Op + " "
		if at.Op == "execute" { // the file and the reason suffice
			op = ""
		}
		return "waldo: " + op + facts.Name(at.Path) + ": " + at.Err.Error() + "\n"
	}
	return "waldo: " + facts.Name(err.Error()) + "\n"
}
