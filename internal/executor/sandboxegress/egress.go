// Package sandboxegress assembles the egress of one sandbox: the rules of its contract's network, the package
// registries, and the injected secrets. It also makes the CA bundle that the sandbox trusts.
package sandboxegress

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"waldo/internal/model/facts"
	"waldo/internal/network/egress"
	"waldo/internal/sandbox"
)

// Egress is the network of one sandbox, and the settings that the sandbox needs to use it. A nil Egress reaches
// nothing.
type Egress struct {
	Server *egress.Server
	Hosts  []string        // allowed hosts, as the operator wrote them
	Env    []string        // placeholders of secrets, and the paths of the mounted files
	Mounts []sandbox.Mount // the CA bundle, and what apt reads
	Secret []string        // hosts to which a secret is sent, over TLS alone
	shown  []*os.File      // the mounted files, which the sandbox holds open
}

// proxied names waldo's proxy to programs that use one. Enforcement does not depend on it.
var proxied = []string{
	fmt.Sprintf("HTTPS_PROXY=http://%s:%d", sandbox.Gateway, sandbox.ProxyPort), "NO_PROXY=localhost,127.0.0.1,::1",
}

// Open adds the egress to a sandbox's profile and returns the variables that its programs must inherit.
func (e *Egress) Open(p *sandbox.Profile) (env []string) {
	if e == nil {
		return nil
	}
	p.Network = sandbox.Network{Hosts: e.Hosts, Ports: e.Server.Ports(), Serve: e.Server.Serve}
	p.Mounts = append(p.Mounts, e.Mounts...)
	return slices.Concat(proxied, e.Env)
}

// Start starts the sandbox, then removes the mounted files from the machine.
func (e *Egress) Start(ctx context.Context, d sandbox.Driver, p sandbox.Profile) (sandbox.Sandbox, error) {
	sb, err := d.Start(ctx, p)
	if err != nil || e == nil {
		return sb, err
	}
	if err := e.remove(); err != nil {
		return nil, errors.Join(err, sb.Close())
	}
	return sb, nil
}

func (e *Egress) remove() (err error) {
	for _, f := range e.shown {
		err = errors.Join(err, os.Remove(f.Name()), f.Close())
	}
	e.shown = nil
	return err
}

// Report adds to f what the sandbox tried to reach since the last report.
func (e *Egress) Report(f *facts.Facts) {
	if e == nil {
		return
	}
	f.Network.Policy, f.Network.AllowedHosts = "allowed", e.Hosts
	e.Server.Report(f)
}

// End closes the egress. It works without a started sandbox too.
func (e *Egress) End() error {
	if e == nil {
		return nil
	}
	return errors.Join(e.Server.Close(), e.remove())
}

// Reached records what the sandbox of a server tried to reach since the last report, and adds it to f.
func (a *Assembler) Reached(server, sandbox string, e *Egress, f *facts.Facts) {
	before := len(f.Network.Attempts)
	e.Report(f)
	if tried := f.Network.Attempts[before:]; len(tried) > 0 && a.Record != nil {
		a.Record(server, sandbox, tried)
	}
}

// Watch calls Reached once a minute until ctx is done.
func (a *Assembler) Watch(ctx context.Context, server, sandbox string, e *Egress) {
	if e == nil {
		return
	}
	t := time.NewTicker(time.Minute)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			f := facts.New()
			a.Reached(server, sandbox, e, &f)
		case <-ctx.Done():
			return
		}
	}
}
