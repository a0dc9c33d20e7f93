//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/gvisor/job"
)

// TestOpenSources: a folder above a mount that became a link since it was looked at is refused.
func TestOpenSources(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Join(dir, "real/data"), 0o700), os.Symlink("real", filepath.Join(dir, "link")))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from           string
		exact, refused bool
	}{{"real/data", true, false}, {"link/data", false, false}, {"link/data", true, true}} {
		n := job.Node{Path: "/data", Kind: job.Bind, From: filepath.Join(dir, c.from), Exact: c.exact}
		if _, err := openSources([]job.Node{n}, nil); errors.Is(err, unix.ELOOP) != c.refused || err != nil && !c.refused {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
