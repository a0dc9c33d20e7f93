//go:build linux && (amd64 || arm64)

package namespace_test

import (
	"testing"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/testing/sandboxtest"
)

func TestKilled(t *testing.T) {
	sandboxtest.Killed(t, "TestKilled", func() sandbox.Driver { return namespace.New(namespace.Options{}) })
}
