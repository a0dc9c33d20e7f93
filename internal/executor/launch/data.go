package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/contract"
	"waldo/internal/sandbox"
)

// dataFolder creates the lasting folder of a name in the state directory, mode 0700.
func (l *Launcher) dataFolder(name string) (sandbox.Mount, error) {
	dir := filepath.Join(l.State, "data", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return sandbox.Mount{}, fmt.Errorf("data: %w", err)
	}
	return sandbox.Mount{Source: dir, Target: contract.DataAt, Writable: true}, nil
}

// writes begins the ledger of a sandbox's writes to folders that outlive it; nil: it has none.
func writes(mounts []sandbox.Mount) (*files.Ledger, error) {
	var lasting []files.Mount
	for _, m := range mounts {
		lasting = append(lasting, files.Mount{Source: m.Source, Target: m.Target, Writable: m.Writable})
	}
	return files.Open(lasting)
}

// together is a share that also returns the absolute names of files written to folders that outlive the sandbox.
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
