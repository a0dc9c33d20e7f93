//go:build linux && (amd64 || arm64)

package namespace_test

import (
	"testing"

	"waldo/internal/sandbox/namespace"
	"waldo/internal/testing/sandboxtest"
)

// TestConformance holds the driver to the suite of every driver.
func TestConformance(t *testing.T) {
	sandboxtest.Run(t, namespace.New(namespace.Options{MilliCPU: 1000}))
}

// TestOrdinaryUser runs the suite again as a user without capabilities, and usually without cgroups.
func TestOrdinaryUser(t *testing.T) {
	sandboxtest.AsOrdinaryUser(t, "TestConformance", "TestDiesWithWaldo", "TestMounts", "TestNamespaces", "TestFine",
		"TestDenials", "TestLandlock", "TestCommandsRefused", "TestWay")
}

// TestTemplateAsItIsToo runs that test as an ordinary user, for whom waldo does not copy a template's mounts.
func TestTemplateAsItIsToo(t *testing.T) {
	sandboxtest.AsOrdinaryUser(t, "TestTemplateAsItIs", "TestFine")
}

// TestFilesAreMemoryToo runs that test as an ordinary user, where as a rule no cgroup counts files.
func TestFilesAreMemoryToo(t *testing.T) { sandboxtest.AsOrdinaryUser(t, "TestFilesAreMemory") }
