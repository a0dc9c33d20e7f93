package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/network/egress"
	"waldo/internal/sandbox"
)

// Way is the way out of one box, and what the box must have to use it.
type Way struct {
	Server *egress.Server
	Hosts  []string        // that may be reached, as the operator wrote them
	Env    []string        // placeholders of secrets, and where programs find whom to trust
	Mounts []sandbox.Mount // what Env names
	Close  func() error    // removes what is mounted, of which the box has its own hold; nil: nothing
}

// proxied tells programs that want a proxy of waldo's. The way out does not rest on it.
var proxied = []string{fmt.Sprintf("HTTPS_PROXY=http://%s:%d", sandbox.Gateway, sandbox.ProxyPort), "NO_PROXY=localhost,127.0.0.1,::1"}

// way makes the way out of a box whose contract allows hosts; nil: it allows none. A secret that
// would not reach the box in any form is a reason not to start.
func (r *Runner) way(d policy.Decision, o Options) (*Way, *call.Reason) {
	n := d.Contract.Network
	if len(o.Hosts) > 0 {
		for _, h := range o.Hosts {
			if !slices.Contains(n.Allow, h) {
				return nil, &call.Reason{Code: "network.unsupported", Text: fmt.Sprintf("the contract does not allow the host %q as it is written", h)}
			}
		}
		n = contract.Network{Allow: o.Hosts, Limits: n.Limits} // narrower
	}
	var w *Way
	if n.Reaches() {
		if r.Egress == nil {
			return nil, &call.Reason{Code: "network.unsupported", Text: "no box can reach hosts here"}
		}
		var err error
		if w, err = r.Egress(d, n); err != nil {
			return nil, &call.Reason{Code: "network.unsupported", Text: err.Error()}
		}
	}
	for _, v := range d.Contract.Placeholders() {
		if w == nil || !slices.ContainsFunc(w.Env, func(e string) bool { return strings.HasPrefix(e, v+"=") }) {
			return nil, &call.Reason{Code: "secrets.unsupported", Text: fmt.Sprintf("the secret %s belongs to a host that this box does not reach", v)}
		}
	}
	return w, nil
}

// Open gives a box the way, in its profile, and returns what its programs must inherit.
func (w *Way) Open(p *sandbox.Profile) (env []string) {
	if w == nil {
		return nil
	}
	p.Network = sandbox.Network{Hosts: w.Hosts, Ports: w.Server.Ports(), Serve: w.Server.Serve}
	p.Mounts = append(p.Mounts, w.Mounts...)
	return slices.Concat(proxied, w.Env)
}

// Start starts the box, and leaves nothing on the machine of what is shown in it.
func (w *Way) Start(ctx context.Context, d sandbox.Driver, p sandbox.Profile) (sandbox.Box, error) {
	box, err := d.Start(ctx, p)
	if err != nil || w == nil {
		return box, err
	}
	if err := w.remove(); err != nil {
		return nil, errors.Join(err, box.Close())
	}
	return box, nil
}

func (w *Way) remove() (err error) {
	if w.Close != nil {
		err, w.Close = w.Close(), nil
	}
	return err
}

// Report says what went over the way since it was last asked.
func (w *Way) Report(f *facts.Facts) {
	if w == nil {
		return
	}
	f.Network.Policy, f.Network.AllowedHosts = "allowed", w.Hosts
	w.Server.Report(f)
}

// End ends the way, also one that no box was started for.
func (w *Way) End() error {
	if w == nil {
		return nil
	}
	return errors.Join(w.Server.Close(), w.remove())
}
