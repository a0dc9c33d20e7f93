//go:build !linux || !(amd64 || arm64)

package namespace

import (
	"context"
	"errors"

	"waldo/internal/sandbox"
)

// Options are what a driver is made with.
type Options struct {
	MilliCPU int64
	Prewarm  int
}

// Driver refuses: this system has no namespaces.
type Driver struct{}

var errSystem = errors.New("namespace: only Linux on amd64 and arm64 has what this driver needs; " +
	"use the engine tier, or waldo in a Linux virtual machine")

// New returns a driver that refuses.
func New(Options) *Driver { return &Driver{} }

// Name returns "namespace".
func (d *Driver) Name() string { return "namespace" }

// Probe reports that the driver is not available.
func (d *Driver) Probe(context.Context) sandbox.Report {
	return sandbox.Report{Driver: d.Name(), Abilities: []sandbox.Ability{
		{Name: "Linux", What: errSystem.Error(), Need: true}}}
}

// Start refuses.
func (d *Driver) Start(context.Context, sandbox.Profile) (sandbox.Sandbox, error) {
	return nil, errSystem
}
