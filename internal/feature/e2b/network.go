package e2b

import (
	"net/netip"
	"slices"
	"strings"

	"waldo/internal/model/contract"
)

// network is what a client asks of a sandbox's network. It can only narrow the contract.
type network struct {
	AllowOut           []string `json:"allowOut,omitempty"`
	DenyOut            []string `json:"denyOut,omitempty"`
	AllowPublicTraffic *bool    `json:"allowPublicTraffic,omitempty"` // waldo has no public traffic: both hold
}

// everything are E2B's words for all addresses.
var everything = []string{"0.0.0.0/0", "::/0"}

// maxRules bounds each list.
const maxRules = 256

// check returns an error for what waldo could not hold to.
func (n *network) check() error {
	if n == nil {
		return nil
	}
	if len(n.AllowOut) > maxRules || len(n.DenyOut) > maxRules {
		return fail(400, "network: at most %d entries in a list", maxRules)
	}
	for _, d := range n.DenyOut {
		if !slices.Contains(everything, d) {
			return fail(400, "network.denyOut: %.100q: waldo takes 0.0.0.0/0 alone there, and the contract of exec denies hosts", d)
		}
	}
	for _, a := range n.AllowOut {
		name := strings.TrimPrefix(a, "*.")
		_, err := netip.ParsePrefix(a)
		_, ip := netip.ParseAddr(a)
		if err != nil && ip != nil && (name == "" || len(name) > 253 ||
			strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-.") != "") {
			return fail(400, "network.allowOut: %.100q is no host, address or prefix", a)
		}
	}
	return nil
}

// hosts returns the hosts of a contract that remain, as the contract writes them. Offline: none does. A contract's host
// remains where an entry names it or covers it. Both empty: all of the contract's.
func (n *network) hosts(c contract.Network) (remain []string, offline bool) {
	switch {
	case n == nil:
		return nil, false
	case len(n.AllowOut) == 0:
		return nil, len(n.DenyOut) > 0
	case slices.ContainsFunc(n.AllowOut, func(a string) bool { return slices.Contains(everything, a) }):
		return nil, false
	}
	for _, written := range c.Allow {
		l, sound := contract.HostLine(written)
		if sound && slices.ContainsFunc(n.AllowOut, func(a string) bool { return covers(a, l.Host.String()) }) {
			remain = append(remain, written)
		}
	}
	return remain, len(remain) == 0
}

// covers reports whether an entry of a client covers a host of a contract, which can be a wildcard itself.
func covers(entry, host string) bool {
	entry = strings.ToLower(entry)
	if entry == host {
		return true
	}
	suffix, wild := strings.CutPrefix(entry, "*")
	return wild && strings.HasSuffix(host, suffix)
}
