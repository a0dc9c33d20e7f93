//go:build linux && (amd64 || arm64)

package gvisor

import (
	"testing"

	"waldo/internal/testing/sandboxtest"
)

func TestAnotherRoot(t *testing.T) { sandboxtest.Template(t, driver(t)) }
