package files

import (
	"errors"

	"waldo/internal/pkginstall"
)

// NotInstalled says that the program or the package of a server is not on this machine, and how an operator puts it
// there: another try cannot help. It is empty for an error with another cause. The text holds no path, so an agent can
// see it.
func NotInstalled(server string, err error) string {
	var f Fault
	switch {
	case errors.Is(err, pkginstall.ErrNotAccepted):
		return ": its package " + pkginstall.ErrNotAccepted.Error() + ". An operator runs: waldo lock --accept " + server
	case errors.As(err, &f) && f.Missing:
		return " cannot start: a file that it needs is missing. An operator sees which with: waldo tools " + server
	}
	return ""
}
