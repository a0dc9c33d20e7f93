package egress

import (
	_ "embed"
	"net/netip"
	"strings"
	"sync"
)

// special lists the address ranges outside the public internet, with the word that a refusal uses. The sources are
// the IANA special-purpose registries (RFC 6890 and later) and the clouds' own ranges.
var special = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "carrier-grade NAT"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved"},
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relay"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmark"}, // the sandbox's own names stand here too
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved or broadcast"},

	{netip.MustParsePrefix("2001::/23"), "reserved"}, // Teredo, ORCHID, benchmark
	{netip.MustParsePrefix("2001:db8::/32"), "documentation"},
	{netip.MustParsePrefix("2002::/16"), "6to4"},
	{netip.MustParsePrefix("3fff::/20"), "documentation"},
	{netip.MustParsePrefix("2620:4f:8000::/48"), "reserved"},
}

// global is IANA's global unicast space (RFC 4291 §2.4). Every address outside it is not public: ::1, fc00::/7,
// fe80::/10, ff00::/8, 64:ff9b::/96 (NAT64), 5f00::/16 and others.
var global = netip.MustParsePrefix("2000::/3")

// Special returns a short reason why an address is not public, or "". It unwraps an IPv4-mapped IPv6 address and
// refuses every other form of IPv4 within IPv6.
func Special(a netip.Addr) string {
	if !a.IsValid() || a.Zone() != "" {
		return "no address"
	}
	a = a.Unmap()
	if a.Is6() && !global.Contains(a) {
		return "not a public IPv6 address"
	}
	if within(metadata(), a) {
		return "link-local or metadata"
	}
	for _, s := range special {
		if s.prefix.Contains(a) {
			return s.what
		}
	}
	return ""
}

// inside are the ranges that a network of the operator's own is built of. A rule marked Internal
// reaches them, and still neither loopback, link-local nor metadata addresses.
var inside = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fc00::/7"),
}

//go:embed metadata.tsv
var clouds string

// metadata returns the addresses where clouds hand out credentials.
var metadata = sync.OnceValue(func() (out []netip.Prefix) {
	for line := range strings.Lines(clouds) {
		if prefix, _, row := strings.Cut(line, "\t"); row {
			out = append(out, netip.MustParsePrefix(prefix))
		}
	}
	return out
})

// internal reports whether an address is of the operator's own network.
func internal(a netip.Addr) bool {
	a = a.Unmap()
	return within(inside, a) && !within(metadata(), a)
}

// local are the addresses of this machine. As those of metadata, a prefix around them does not open them. One that is
// written alone is meant.
var local = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// never are addresses that no host can have: this network, the sandbox's own names, multicast.
var never = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("::/128"), netip.MustParsePrefix("ff00::/8"),
}

// stands reports whether an address is one of those that the operator has named for a host.
func stands(own []netip.Prefix, a netip.Addr) bool {
	if within(never, a) || a.Zone() != "" {
		return false
	}
	alone := within(local, a) || within(metadata(), a)
	for _, p := range own {
		if p.Contains(a) && (p.IsSingleIP() || !alone) {
			return true
		}
	}
	return false
}

func within(ps []netip.Prefix, a netip.Addr) bool {
	for _, p := range ps {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
