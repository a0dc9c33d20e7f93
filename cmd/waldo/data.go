package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"waldo/internal/agenthosts/wellknown"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/contract"
	"waldo/internal/sandbox"
)

// dataFolder makes sure of the lasting folder of a name, mode 0700, in the state directory.
func (h *house) dataFolder(name string) (sandbox.Mount, error) {
	dir := filepath.Join(h.state, "data", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return sandbox.Mount{}, fmt.Errorf("data: %w", err)
	}
	return sandbox.Mount{Source: dir, Target: contract.DataAt, Writable: true}, nil
}

// dataOf returns the variables that tell a well-known server of its lasting folder.
func dataOf(s contract.Server) map[string]string {
	row, _ := wellknown.Find(s.Command)
	return row.Data
}

// writes begins the ledger of what a server's sandbox writes to folders that stay; nil: it has none.
func writes(mounts []sandbox.Mount) (*files.Ledger, error) {
	var lasting []files.Mount
	for _, m := range mounts {
		lasting = append(lasting, files.Mount{Source: m.Source, Target: m.Target, Writable: m.Writable})
	}
	return files.Open(lasting)
}

// together is a share that also names what was written to folders that stay. Those names are absolute.
func together(share func() ([]string, error), ledger *files.Ledger) func() ([]string, error) {
	if ledger == nil {
		return share
	}
	return func() (names []string, err error) {
		if share != nil {
			names, err = share()
		}
		written, lerr := ledger.Written()
		return slices.Concat(names, written), errors.Join(err, lerr)
	}
}
