package egress

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"

	"waldo/internal/model/hostrule"
	"waldo/internal/sandbox"
)

// names gives each allowed name an address inside the sandbox, and maps that address back.
type names struct {
	policy *Policy
	most   int
	marks  *marks // a name that holds a placeholder is not allowed

	mu     sync.Mutex
	byName map[string]netip.Addr
	byAddr map[netip.Addr]string
	last   netip.Addr
}

func newNames(p *Policy, most int) *names {
	return &names{policy: p, most: most, byName: map[string]netip.Addr{}, byAddr: map[netip.Addr]string{}, last: sandbox.Gateway}
}

// address returns a name's address inside the sandbox; false: the name is not allowed.
func (n *names) address(name string) (netip.Addr, bool) {
	name = hostrule.Normal(name)
	if n.marks.in([]byte(name)) || !slices.ContainsFunc(n.policy.Rules, func(r Rule) bool { return r.Host.Match(name) }) {
		return netip.Addr{}, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, ok := n.byName[name]; ok {
		return a, true
	}
	if len(n.byName) >= n.most {
		return netip.Addr{}, false
	}
	n.last = n.last.Next()
	n.byName[name], n.byAddr[n.last] = n.last, name
	return n.last, true
}

// name returns the name of an address inside the sandbox, or "".
func (n *names) name(a netip.Addr) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byAddr[a.Unmap()]
}

// answer answers one DNS question (RFC 1035): A for allowed names, an empty answer for other types, NXDOMAIN for
// other names. No question leaves the machine. It returns nil for a malformed question. refused is the name that was
// refused.
func (n *names) answer(query []byte) (reply []byte, refused string) {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil || h.Response {
		return nil, ""
	}
	q, err := p.Question()
	if err != nil {
		return nil, ""
	}
	head := dnsmessage.Header{ID: h.ID, Response: true, OpCode: h.OpCode, RecursionDesired: h.RecursionDesired, RecursionAvailable: true}
	name := strings.TrimSuffix(strings.ToLower(q.Name.String()), ".")
	addr, ok := n.address(name)
	switch {
	case h.OpCode != 0 || q.Class != dnsmessage.ClassINET:
		head.RCode, ok = dnsmessage.RCodeRefused, false
	case !ok:
		head.RCode, refused = dnsmessage.RCodeNameError, name
	}
	b := dnsmessage.NewBuilder(make([]byte, 0, 512), head)
	b.EnableCompression()
	if b.StartQuestions() != nil || b.Question(q) != nil || b.StartAnswers() != nil {
		return nil, refused
	}
	if ok && (q.Type == dnsmessage.TypeA || q.Type == dnsmessage.TypeALL) {
		if b.AResource(dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 60}, dnsmessage.AResource{A: addr.As4()}) != nil {
			return nil, refused
		}
	}
	reply, err = b.Finish()
	if err != nil {
		return nil, refused
	}
	return reply, refused
}

// serve answers questions until the socket is closed.
func (n *names) serve(c net.PacketConn, refused func(name string)) {
	b := make([]byte, 1500)
	for {
		k, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		reply, bad := n.answer(b[:k])
		if bad != "" {
			refused(bad)
		}
		if reply != nil {
			_, _ = c.WriteTo(reply, from)
		}
	}
}
