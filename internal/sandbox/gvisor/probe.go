//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"

	"waldo/internal/sandbox"
)

// Probe makes a box, looks at it from inside, and says what holds on this machine.
func (d *Driver) Probe(ctx context.Context) sandbox.Report {
	return sandbox.Report{Driver: d.Name()}
}
