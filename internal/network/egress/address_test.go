package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
)

// TestAddresses: a host with addresses in the policy is dialled only there, for any answer of the resolver. No other
// host may use those addresses.
func TestAddresses(t *testing.T) {
	own := map[string][]netip.Prefix{
		"npm.example.com": {netip.MustParsePrefix("203.0.113.0/24")},
		"wide.example.com": {netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("127.0.0.0/16"),
			netip.MustParsePrefix("100.100.0.0/16"),
			netip.MustParsePrefix("198.18.0.0/16"), netip.MustParsePrefix("0.0.0.0/16"), netip.MustParsePrefix("fd00:ec2::/48"),
			netip.MustParsePrefix("::/48")},
		"exact.example.com": {netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("169.254.169.254/32"),
			netip.MustParsePrefix("0.0.0.0/32"), netip.MustParsePrefix("198.18.0.1/32")},
	}
	rule, err := ParseRules([]string{"npm.example.com", "wide.example.com", "exact.example.com", "other.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	dial := func(addresses map[string][]netip.Prefix, host string, at ...string) (dialled, code string) {
		d := &Dialer{Policy: &Policy{Rules: rule, Addresses: addresses}, Resolver: fixed{host: at},
			Connect: func(_ context.Context, to netip.AddrPort) (net.Conn, error) {
				dialled = to.Addr().String()
				return nil, io.EOF
			}}
		_, err := d.Dial(t.Context(), host, 443)
		var why *Refusal
		if errors.As(err, &why) {
			code = why.Code
		}
		return dialled, code
	}
	const no = "egress.address"
	for _, row := range []struct {
		why, host string
		at        []string
		control   string // dialled without the policy's address
		want      string // dialled; empty: refused
	}{
		{"its own address", "npm.example.com", []string{"203.0.113.80"}, "", "203.0.113.80"},
		{"the same in IPv6 clothes", "npm.example.com", []string{"::ffff:203.0.113.80"}, "", "203.0.113.80"},
		{"a public address, which is not its own", "npm.example.com", []string{"93.184.215.14"}, "93.184.215.14", ""},
		{"a private address, which is not its own", "npm.example.com", []string{"10.0.0.7"}, "", ""},
		{"one of each", "npm.example.com", []string{"203.0.113.80", "127.0.0.1"}, "", ""},
		{"another host at the same address", "other.example.com", []string{"203.0.113.80"}, "", ""},
		{"another host (control)", "other.example.com", []string{"93.184.215.14"}, "93.184.215.14", "93.184.215.14"},
		{"loopback within a prefix", "wide.example.com", []string{"127.0.0.1"}, "", ""},
		{"metadata within a prefix", "wide.example.com", []string{"169.254.169.254"}, "", ""},
		{"another cloud's metadata within a prefix", "wide.example.com", []string{"100.100.100.200"}, "", ""},
		{"metadata within a prefix of IPv6", "wide.example.com", []string{"fd00:ec2::254"}, "", ""},
		{"loopback within a prefix of IPv6", "wide.example.com", []string{"::1"}, "", ""},
		{"a neighbour of the metadata (control)", "wide.example.com", []string{"100.100.100.201"}, "", "100.100.100.201"},
		{"the sandbox's own names", "wide.example.com", []string{"198.18.0.1"}, "", ""},
		{"this network", "wide.example.com", []string{"0.0.0.0"}, "", ""},
		{"loopback, written alone", "exact.example.com", []string{"127.0.0.1"}, "", "127.0.0.1"},
		{"loopback beside the one that is written", "exact.example.com", []string{"127.0.0.2"}, "", ""},
		{"metadata, written alone", "exact.example.com", []string{"169.254.169.254"}, "", "169.254.169.254"},
		{"the sandbox's own names, written alone", "exact.example.com", []string{"198.18.0.1"}, "", ""},
		{"this network, written alone", "exact.example.com", []string{"0.0.0.0"}, "", ""},
	} {
		if got, code := dial(nil, row.host, row.at...); got != row.control || (got == "") != (code == no) {
			t.Errorf("%s, with nothing written: %q %q", row.why, got, code)
		}
		if got, code := dial(own, row.host, row.at...); got != row.want || (got == "") != (code == no) {
			t.Errorf("%s: %q %q", row.why, got, code)
		}
	}
}

// TestMetadata: no host under internal: is dialled at an address of the table, of any cloud. One next to it, and one
// that is written alone, are.
func TestMetadata(t *testing.T) {
	p := policyOf(t, "meta.corp.example")
	p.Rules[0].Internal = true
	for _, a := range []string{
		"169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fe80::a9fe:a9fe",
		"fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:100::100:200", "fd00:c1::a9fe:a9fe", "fd00:42::42",
		"fd00:a9fe:a9fe::1", "::ffff:100.100.100.200",
	} {
		if why := p.Address("meta.corp.example", 80, netip.MustParseAddr(a)); why == nil || why.Code != "egress.address" {
			t.Errorf("%s: %v", a, why)
		}
		alone := policyOf(t, "meta.corp.example")
		alone.Addresses = map[string][]netip.Prefix{"meta.corp.example": {netip.PrefixFrom(netip.MustParseAddr(a).Unmap(),
			netip.MustParseAddr(a).Unmap().BitLen())}}
		if why := alone.Address("meta.corp.example", 80, netip.MustParseAddr(a)); why != nil {
			t.Errorf("%s, written alone: %v", a, why)
		}
	}
	for _, a := range []string{"100.100.100.201", "fd00:c1::a9fe:a9ff", "fd00:42::43", "fd00:100::100:201", "10.0.0.1"} {
		if why := p.Address("meta.corp.example", 80, netip.MustParseAddr(a)); why != nil {
			t.Errorf("control: %s: %v", a, why)
		}
	}
}
