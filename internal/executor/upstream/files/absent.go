package files

import (
	"errors"

	"waldo/internal/pkginstall"
)

// NotInstalled returns the cause and the remedy if a program or package of a server is missing on this machine, or an
// empty text. The text holds no path, so agents can see it.
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
