//go:build !unix

package upstream

import (
	"context"
	"errors"
)

// Exec refuses: on this system nothing would end what a server has started.
func Exec(context.Context, []string, []string, string) (Process, error) {
	return Process{}, errors.New("servers cannot be started on this system")
}
