//go:build !linux

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"waldo/internal/executor/runner"
)

func (h *application) onTerminal(*cobra.Command, *runner.Options, string, func()) (func() error, error) {
	return nil, errors.New("-t: only sandboxes of Linux have terminals")
}
