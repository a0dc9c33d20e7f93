//go:build !linux || !(amd64 || arm64)

package confined

import (
	"context"
	"errors"

	"waldo/internal/sandbox"
)

// Driver refuses: this system has no Landlock.
type Driver struct{}

var errSystem = errors.New("confined: only Linux on amd64 and arm64 has Landlock and seccomp")

// New returns a driver that refuses.
func New(Options) *Driver { return &Driver{} }

// Main returns: nothing is started here.
func Main() {}

// Name returns "confined".
func (d *Driver) Name() string { return "confined" }

// Probe reports that the driver is not available.
func (d *Driver) Probe(context.Context) sandbox.Report {
	return sandbox.Report{Driver: d.Name(), Abilities: []sandbox.Ability{{Name: "Linux", What: errSystem.Error(),
		Need: true}}}
}

// Start refuses.
func (d *Driver) Start(context.Context, sandbox.Profile) (sandbox.Sandbox, error) {
	return nil, errSystem
}
