//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/cgroup"
)

// Driver makes sandboxes out of gVisor.
type Driver struct {
	options Options
	cgroups func() (*cgroup.Host, error)

	unpacking sync.Mutex
	unpacked  *os.File // nil: not yet, or it failed
}

// New returns the driver. It does nothing until Probe or Start.
func New(o Options) *Driver {
	return &Driver{
		options: o,
		cgroups: sync.OnceValues(func() (*cgroup.Host, error) {
			host, err := cgroup.Detect()
			if err == nil {
				_, _ = host.Sweep() // the next waldo tries again those that cannot be removed now
			}
			return host, err
		}),
	}
}

// executable returns gVisor's executable, unpacked at its first use. An unpacking that was cancelled is begun again.
func (d *Driver) executable(ctx context.Context) (f *os.File, err error) {
	d.unpacking.Lock()
	defer d.unpacking.Unlock()
	if d.unpacked != nil {
		return d.unpacked, nil
	}
	p, err := inside(payload)
	if err != nil {
		return nil, err
	}
	if d.options.State == "" {
		return nil, errors.New("no state directory to unpack gVisor into")
	}
	p.progress = d.options.Progress
	d.unpacked, err = p.open(ctx, filepath.Join(d.options.State, "run"))
	return d.unpacked, err
}

// Name returns "gvisor".
func (d *Driver) Name() string { return "gvisor" }

// Start prepares a sandbox: its root and its volumes. The kernel comes with each command.
func (d *Driver) Start(ctx context.Context, p sandbox.Profile) (sandbox.Sandbox, error) {
	b, err := d.start(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	return b, nil
}

func (d *Driver) start(ctx context.Context, p sandbox.Profile) (*instance, error) {
	if err := errors.Join(p.Validate(), refuseHosts(p), sandbox.NoShare(p), sandbox.NoWritable(p),
		sandbox.NoHidden(p), sandbox.NoOnly(p)); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	executable, err := d.executable(ctx)
	if err != nil {
		return nil, err
	}
	host, err := d.cgroups()
	if err != nil {
		return nil, err
	}
	b := &instance{driver: d, profile: p, host: host, warnings: []string{}}
	if err := b.prepare(executable); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// staleAfter is how old a file of an earlier build must be before it is swept.
const staleAfter = 24 * time.Hour

var _ sandbox.Driver = (*Driver)(nil)
