//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"errors"
	"testing"

	"waldo/internal/sandbox"
	"waldo/internal/testing/sandboxtest"
)

// driver returns a driver, or ends the test where this build has no gVisor inside.
func driver(t *testing.T) *Driver {
	t.Helper()
	d := New(Options{State: t.TempDir(), MilliCPU: 1000})
	if _, err := d.executable(context.Background()); errors.Is(err, errNoPayload) {
		t.Skip("no gVisor inside: scripts/build-gvisor.sh makes it, as make test does")
	}
	return d
}

func TestKilled(t *testing.T) {
	d := driver(t)
	sandboxtest.Killed(t, "TestKilled", func() sandbox.Driver { return New(d.options) })
}

func TestSuite(t *testing.T) { sandboxtest.Run(t, driver(t)) }

// TestSuiteAsOrdinaryUser runs the suite again as a user with no capabilities, where it was
// started by root.
func TestSuiteAsOrdinaryUser(t *testing.T) {
	driver(t)
	sandboxtest.AsOrdinaryUser(t, "TestSuite", "TestKilled", "TestOwnMemory")
}
