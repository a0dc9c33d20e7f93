//go:build linux && (amd64 || arm64)

package gvisor

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/gvisor/job"
	"waldo/internal/sandbox/netns"
)

// refuseHosts returns an error if a sandbox cannot have the requested network. A root of its own has its own
// resolv.conf, and gVisor has no means to cover it.
func refuseHosts(p sandbox.Profile) error {
	if len(p.Network.Ports) > 0 && p.Template.Dir != "" {
		return errors.New("hosts and a template: gVisor's sandboxes reach hosts from the host's own root alone; " +
			"isolation namespace does both")
	}
	if i := slices.IndexFunc(p.Network.Hosts, func(h string) bool { return strings.HasPrefix(h, "localhost:") }); i >= 0 {
		return fmt.Errorf("%s: gVisor's sandboxes have a loopback of their own that nothing leaves; isolation namespace "+
			"reaches it", p.Network.Hosts[i])
	}
	return nil
}

// egressSockets says which sockets PID 1 must make: for names, for the proxy, and one for each port.
func (b *instance) egressSockets() job.Egress {
	ports := b.profile.Network.Ports
	if len(ports) == 0 {
		return job.Egress{}
	}
	at := sandbox.Gateway.As4()
	w := job.Egress{Route: netns.LocalRoute(), Sockets: []job.Socket{{UDP: true, Addr: at, Port: 53},
		{Addr: at, Port: sandbox.ProxyPort}}}
	for _, p := range ports {
		w.Sockets = append(w.Sockets, job.Socket{Port: p})
	}
	return w
}

// open makes the egress from the sockets that the sandbox sent, and gives it to its server.
func (b *instance) open(sockets []*os.File) error {
	if len(sockets) == 0 {
		return nil
	}
	w, err := netns.Egress(sockets, len(b.profile.Network.Ports))
	if err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	b.egress = b.profile.Network.Serve(w)
	return nil
}

// outside reports whether a denial names an address that the egress answers for.
func (b *instance) outside(what string) bool {
	a, err := netip.ParseAddrPort(strings.TrimPrefix(what, "connect "))
	return err == nil && len(b.profile.Network.Ports) > 0 && sandbox.Outside.Contains(a.Addr())
}
