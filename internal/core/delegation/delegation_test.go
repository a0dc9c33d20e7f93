package delegation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/internal/core/delegation"
	"waldo/internal/core/policy"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
	"waldo/internal/model/secret"
)

// memory is a log of delegations in memory.
type memory struct {
	mu     sync.Mutex
	ledger delegation.Ledger
	seq    uint64
	broken error
	all    []delegation.Record
}

func (m *memory) Delegations(_ context.Context, fn func(*delegation.Ledger)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken == nil {
		fn(&m.ledger)
	}
	return m.broken
}

func (m *memory) Delegate(_ context.Context, r delegation.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seq++
	m.all = append(m.all, r)
	return m.ledger.Take(m.seq, r)
}

// decided records a decision, as the pipeline does.
func (m *memory) decided(d policy.Decision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.Effect != policy.Deny {
		m.ledger.Decided(d.ID, d.Call.Chain)
	}
}

// clock is moved by hand.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

const parent, child = call.Principal("os:1000"), call.Principal("token:child")

// world is a service over contracts that differ in danger, hosts and secrets.
type world struct {
	*delegation.Service
	log   *memory
	clock *clock
}

func newWorld(t testing.TB) world {
	t.Helper()
	approve := func(when contract.When) contract.Approval { return contract.Approval{When: when} }
	keys := map[string]contract.Position{"mode": {}, "approval": {}, "danger": {}}
	cfg := &contract.Config{Servers: map[string]contract.Server{
		"github": {Name: "github", URL: "https://api.github.example/mcp", Auth: contract.Auth{Bearer: "gh-token"}},
		"local":  {Name: "local", Command: []string{"local"}},
	}, Contracts: []contract.Contract{
		{Pattern: "local.read_*", Mode: contract.Read, Danger: 1, Approval: approve(contract.Never), Keys: keys},
		{Pattern: "local.write_*", Mode: contract.Write, Danger: 2, Approval: approve(contract.Never), Keys: keys},
		{Pattern: "local.drop", Mode: contract.HighRisk, Danger: 3, Approval: approve(contract.Always), Keys: keys},
		{Pattern: "local.secret", Mode: contract.Read, Danger: 1, Approval: approve(contract.Never), Keys: keys,
			Rules: []contract.Rule{{When: contract.Condition{Source: "principal != 'token:child'"}, Deny: true,
				Reason: "only the child"}}},
		{Pattern: "github.*", Mode: contract.Read, Danger: 1, Approval: approve(contract.Never), Keys: keys},
		{Pattern: "run_python", Mode: contract.HighRisk, Danger: 3, Approval: approve(contract.Never), Keys: keys,
			Isolation: "namespace",
			Network:   contract.Network{Allow: []string{"*.example.com", "GET api.other.test/v1/*"}},
			Secrets:   map[string]secret.Ref{"KEY": "py-key"}},
	}}
	p, err := policy.New(cfg, policy.Machine{Isolations: map[string]bool{"namespace": true},
		Transports: map[contract.Transport]bool{contract.MCP: true, contract.SandboxedExec: true},
		Secrets:    map[string]bool{"py-key": true, "gh-token": true}})
	if err != nil {
		t.Fatal(err)
	}
	w := world{log: &memory{}, clock: &clock{time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)}}
	w.Service = &delegation.Service{Policy: p, Log: delegation.Shared{Log: w.log}, Live: &delegation.Live{}, Now: w.clock.now}
	return w
}

// wide is a request that the tests narrow.
func wide() delegation.Request {
	return delegation.Request{For: child, Lifetime: time.Hour, Bounds: delegation.Bounds{
		Allow: []contract.Pattern{"local.*", "github.*", "run_python"}, Hosts: []string{delegation.All},
		Secrets: []string{delegation.All}, Danger: 3, Calls: 10, Depth: 2}}
}

// give delegates, and fails the test where it is refused.
func (w world) give(t testing.TB, above string, by call.Principal, r delegation.Request) string {
	t.Helper()
	token, _, against, err := w.Delegate(t.Context(), above, by, r)
	if against != nil || err != nil {
		t.Fatal(against, err)
	}
	return token
}

// call takes a call as the pipeline does, until it would be granted. It returns the decision and the first reason
// against it.
func (w world) call(t testing.TB, c call.Call) (policy.Decision, string) {
	t.Helper()
	under, against := w.Under(t.Context(), c)
	if against != nil {
		return policy.Decision{}, against.Code
	}
	c.Chain, c.Delegation = under.IDs(), ""
	if under == nil {
		d := w.Policy.Decide(c)
		return d, ""
	}
	d := w.Decide(c, under)
	d.ID = id.New(id.Decision)
	w.log.decided(d)
	if d.Effect == policy.Deny {
		return d, d.Reasons[0].Code
	}
	if against := w.Confirm(t.Context(), d, under); against != nil {
		return d, against.Code
	}
	return d, ""
}

func asks(token string, capability call.Capability, args string) call.Call {
	a, err := call.ParseArgs([]byte(args))
	if err != nil {
		panic(err)
	}
	return call.Call{ID: id.New(id.Call), Capability: capability, Args: a, Principal: child, Channel: "mcp",
		Delegation: token}
}

// TestWiderRequests: a request is refused with the code of the line that bounds it. The control is the same request as
// narrow as its parent.
func TestWiderRequests(t *testing.T) {
	narrow := delegation.Request{For: child, Lifetime: time.Hour, Bounds: delegation.Bounds{
		Allow: []contract.Pattern{"local.read_*"}, Hosts: []string{"*.example.com"}, Secrets: []string{"py-key"},
		Danger: 2, Calls: 5, Depth: 1}}
	same := narrow
	same.Depth = 0
	for _, row := range []struct {
		why, want string
		change    func(r *delegation.Request)
	}{
		{"control", "", func(*delegation.Request) {}},
		{"every capability", "delegation.capability", func(r *delegation.Request) { r.Allow = []contract.Pattern{"*"} }},
		{"a wider pattern", "delegation.capability", func(r *delegation.Request) { r.Allow = []contract.Pattern{"local.*"} }},
		{"a pattern that overlaps", "delegation.capability",
			func(r *delegation.Request) { r.Allow = []contract.Pattern{"*.read_x"} }},
		{"one more capability", "delegation.capability",
			func(r *delegation.Request) { r.Allow = append(slices.Clone(r.Allow), "local.drop") }},
		{"another case", "delegation.capability",
			func(r *delegation.Request) { r.Allow = []contract.Pattern{"local.READ_x"} }},
		{"no capability", "delegation.request", func(r *delegation.Request) { r.Allow = nil }},
		{"two stars", "delegation.request", func(r *delegation.Request) { r.Allow = []contract.Pattern{"local.**"} }},
		{"all hosts", "delegation.hosts", func(r *delegation.Request) { r.Hosts = []string{delegation.All} }},
		{"a host above the wildcard", "delegation.hosts", func(r *delegation.Request) { r.Hosts = []string{"example.com"} }},
		{"another host", "delegation.hosts", func(r *delegation.Request) { r.Hosts = []string{"*.example.com.evil.test"} }},
		{"a host that is none", "delegation.request", func(r *delegation.Request) { r.Hosts = []string{"*.com"} }},
		{"another secret", "delegation.secrets", func(r *delegation.Request) { r.Secrets = []string{"gh-token"} }},
		{"all secrets", "delegation.secrets", func(r *delegation.Request) { r.Secrets = []string{delegation.All} }},
		{"a higher danger", "delegation.danger", func(r *delegation.Request) { r.Danger = 3 }},
		{"danger 4", "delegation.request", func(r *delegation.Request) { r.Danger = 4 }},
		{"danger 0", "delegation.request", func(r *delegation.Request) { r.Danger = 0 }},
		{"more calls", "delegation.budget", func(r *delegation.Request) { r.Calls = 6 }},
		{"negative calls", "delegation.request", func(r *delegation.Request) { r.Calls = -1 }},
		{"as deep", "delegation.depth", func(r *delegation.Request) { r.Depth = 1 }},
		{"a longer life", "delegation.lifetime", func(r *delegation.Request) { r.Lifetime = time.Hour + time.Second }},
		{"an endless life", "delegation.request", func(r *delegation.Request) { r.Lifetime = 1 << 62 }},
		{"a negative life", "delegation.request", func(r *delegation.Request) { r.Lifetime = -time.Hour }},
		{"for nobody", "delegation.request", func(r *delegation.Request) { r.For = "" }},
		{"a condition that is no CEL", "delegation.request", func(r *delegation.Request) { r.If = []string{"true ||"} }},
	} {
		t.Run(row.why, func(t *testing.T) {
			w := newWorld(t)
			token := w.give(t, "", parent, narrow)
			r := same
			row.change(&r)
			_, _, against, err := w.Delegate(t.Context(), token, child, r)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if against != nil {
				got = against.Code
			}
			if got != row.want {
				t.Errorf("got %q, want %q (%+v)", got, row.want, against)
			}
		})
	}
}

// TestRootRequests: at the root the contracts bound a request, with their line.
func TestRootRequests(t *testing.T) {
	w := newWorld(t)
	for allow, want := range map[contract.Pattern]string{
		"local.read_x": "", "local.*": "", "nothing.at_all": "contract.absent", "nothing.*": "contract.absent",
		"local.secret": "rule.deny", // not for the parent
	} {
		r := wide()
		r.Allow = []contract.Pattern{allow}
		got := ""
		if _, _, against, err := w.Delegate(t.Context(), "", parent, r); err != nil {
			t.Fatal(err)
		} else if against != nil {
			got = against.Code
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", allow, got, want)
		}
	}
}

// TestAttacks: calls and tokens that try to be more than they are. Each begins with a control.
func TestAttacks(t *testing.T) {
	read := func(token string) call.Call { return asks(token, "local.read_x", `{"path":"a"}`) }
	for _, row := range []struct {
		why, want string
		bounds    func(r *delegation.Request)
		attack    func(t *testing.T, w world, token string) call.Call
	}{
		{"control", "", nil, func(_ *testing.T, _ world, token string) call.Call { return read(token) }},
		{"a capability outside of allow", "delegation.capability",
			func(r *delegation.Request) { r.Allow = []contract.Pattern{"local.read_*"} },
			func(_ *testing.T, _ world, token string) call.Call { return asks(token, "local.write_x", `{}`) }},
		{"a false condition", "delegation.condition", func(r *delegation.Request) { r.If = []string{"args.path == 'a'"} },
			func(_ *testing.T, _ world, token string) call.Call {
				return asks(token, "local.read_x", `{"path":"b"}`)
			}},
		{"a condition over an argument that is absent", "delegation.condition_error",
			func(r *delegation.Request) { r.If = []string{"args.path == 'a'"} },
			func(_ *testing.T, _ world, token string) call.Call {
				return asks(token, "local.read_x", `{"Path":"a"}`)
			}},
		{"too dangerous", "delegation.danger", func(r *delegation.Request) { r.Danger = 1 },
			func(_ *testing.T, _ world, token string) call.Call { return asks(token, "local.write_x", `{}`) }},
		{"a secret of the contract", "delegation.secrets", func(r *delegation.Request) { r.Secrets = nil },
			func(_ *testing.T, _ world, token string) call.Call { return asks(token, "run_python", `{"code":"1"}`) }},
		{"a secret of the server", "delegation.secrets", func(r *delegation.Request) { r.Secrets = []string{"py-key"} },
			func(_ *testing.T, _ world, token string) call.Call { return asks(token, "github.get", `{}`) }},
		{"the host of the server", "delegation.hosts", func(r *delegation.Request) { r.Hosts = []string{"*.example.com"} },
			func(_ *testing.T, _ world, token string) call.Call { return asks(token, "github.get", `{}`) }},
		{"what only the child can do, and not its parent", "rule.deny", nil,
			func(_ *testing.T, _ world, token string) call.Call { return asks(token, "local.secret", `{}`) }},
		{"another principal's token", "delegation.principal", nil,
			func(_ *testing.T, _ world, token string) call.Call {
				c := read(token)
				c.Principal = "token:other"
				return c
			}},
		{"the parent's own principal with the child's token", "delegation.principal", nil,
			func(_ *testing.T, _ world, token string) call.Call {
				c := read(token)
				c.Principal = parent
				return c
			}},
		{"a forged secret", "delegation.token", nil,
			func(_ *testing.T, _ world, token string) call.Call {
				return read(token[:len(token)-4] + "aaaa")
			}},
		{"a forged id", "delegation.absent", nil, func(_ *testing.T, _ world, token string) call.Call {
			at := strings.Index(token, "dg_")
			return read(token[:at] + id.New(id.Delegation) + token[at+29:])
		}},
		{"no token", "delegation.malformed", nil, func(*testing.T, world, string) call.Call { return read("\x00") }},
		{"the id in place of the token", "delegation.malformed", nil,
			func(_ *testing.T, w world, _ string) call.Call { return read(w.log.all[0].ID) }},
		{"expired", "delegation.expired", nil, func(_ *testing.T, w world, token string) call.Call {
			w.clock.at = w.clock.at.Add(time.Hour)
			return read(token)
		}},
		{"the clock put back after the end", "delegation.expired", nil, func(_ *testing.T, w world, token string) call.Call {
			w.log.ledger.Seen(w.clock.at.Add(2 * time.Hour)) // a record was written then
			w.clock.at = w.clock.at.Add(-time.Hour)
			return read(token)
		}},
		{"revoked", "delegation.revoked", nil, func(t *testing.T, w world, token string) call.Call {
			revoke(t, w, 0)
			return read(token)
		}},
		{"an ancestor revoked", "delegation.revoked", nil, func(t *testing.T, w world, token string) call.Call {
			r := wide()
			r.Depth = 1
			below := w.give(t, token, child, r)
			if _, why := w.call(t, read(below)); why != "" {
				t.Fatal("control:", why)
			}
			revoke(t, w, 0)
			return read(below)
		}},
		{"the record replayed after its revocation", "delegation.revoked", nil,
			func(t *testing.T, w world, token string) call.Call {
				revoke(t, w, 0)
				if err := w.log.Delegate(t.Context(), w.log.all[0]); err == nil {
					t.Error("a repeated record was taken")
				}
				return read(token)
			}},
		{"a program that names a delegation beside its own", "delegation.outside", nil,
			func(t *testing.T, w world, token string) call.Call {
				other := w.give(t, "", parent, wide())
				c := read(other)
				c.Chain = []string{w.log.all[0].ID}
				return c
			}},
		{"a process that is bound, and a token beside that", "delegation.outside", nil,
			func(t *testing.T, w world, token string) call.Call {
				base, why := w.Enter(t.Context(), token, call.Proof{}, child)
				if why != nil {
					t.Fatal(why)
				}
				w.Base = base
				return read(w.log.other(t, w))
			}},
		{"a log that does not chain", "delegation.unproven", nil, func(_ *testing.T, w world, token string) call.Call {
			w.log.broken = errors.New("cut")
			return read(token)
		}},
	} {
		t.Run(row.why, func(t *testing.T) {
			w := newWorld(t)
			r := wide()
			if row.bounds != nil {
				row.bounds(&r)
			}
			token := w.give(t, "", parent, r)
			if _, why := w.call(t, read(token)); why != "" {
				t.Fatal("control:", why)
			}
			if _, why := w.call(t, row.attack(t, w, token)); why != row.want {
				t.Errorf("got %q, want %q", why, row.want)
			}
		})
	}
}

// other makes a delegation at the root with a service that is not bound.
func (m *memory) other(t *testing.T, w world) string {
	t.Helper()
	free := *w.Service
	free.Base = delegation.Link{}
	token, _, against, err := free.Delegate(t.Context(), "", parent, wide())
	if err != nil || against != nil {
		t.Fatal(against, err)
	}
	return token
}

func revoke(t *testing.T, w world, n int) {
	t.Helper()
	if _, _, err := delegation.Revoke(t.Context(), w.Log, w.log.all[n].ID, parent); err != nil {
		t.Fatal(err)
	}
}

// TestForgedRecords: a record that is wider than its parent, or of another principal, counts for nothing.
func TestForgedRecords(t *testing.T) {
	w := newWorld(t)
	r := wide()
	r.Danger, r.Depth = 1, 1
	w.give(t, "", parent, r)
	good := w.log.all[0]
	for _, row := range []struct {
		why    string
		change func(f *delegation.Record, b *delegation.Bounds)
		taken  bool
	}{
		{"control", func(*delegation.Record, *delegation.Bounds) {}, true},
		{"a higher danger", func(_ *delegation.Record, b *delegation.Bounds) { b.Danger = 3 }, false},
		{"as deep as its parent", func(_ *delegation.Record, b *delegation.Bounds) { b.Depth = 1 }, false},
		{"a later end", func(f *delegation.Record, _ *delegation.Bounds) { f.Expires = f.Expires.Add(time.Hour) }, false},
		{"of another principal", func(f *delegation.Record, _ *delegation.Bounds) { f.By = "token:other" }, false},
		{"a parent that is absent", func(f *delegation.Record,
			_ *delegation.Bounds) {
			f.Parent = id.New(id.Delegation)
		}, false},
		{"without bounds", func(f *delegation.Record, _ *delegation.Bounds) { f.Bounds = nil }, false},
		{"without a token", func(f *delegation.Record, _ *delegation.Bounds) { f.Token = "" }, false},
		{"an unknown action", func(f *delegation.Record, _ *delegation.Bounds) { f.Action = "widen" }, false},
	} {
		f, b := good, *good.Bounds
		b.Depth = 0
		f.ID, f.Parent, f.By, f.Bounds = id.New(id.Delegation), good.ID, child, &b
		row.change(&f, &b)
		if err := w.log.Delegate(t.Context(), f); (err == nil) != row.taken {
			t.Errorf("%s: %v", row.why, err)
		}
	}
}

// TestHostsAreFewer: code reaches only the hosts that both its contract and every delegation name.
func TestHostsAreFewer(t *testing.T) {
	w := newWorld(t)
	for _, row := range []struct{ bounds, want []string }{
		{[]string{delegation.All}, []string{"*.example.com", "GET api.other.test/v1/*"}},
		{[]string{"api.example.com"}, []string{"api.example.com"}},
		{[]string{"*.other.test"}, []string{"GET api.other.test/v1/*"}},
		{[]string{"*.a.example.com", "evil.test"}, []string{"*.a.example.com"}},
		{nil, nil},
	} {
		r := wide()
		r.Hosts, r.Calls = row.bounds, 3
		d, why := w.call(t, asks(w.give(t, "", parent, r), "run_python", `{"code":"1"}`))
		if why != "" || !slices.Equal(d.Contract.Network.Allow, row.want) {
			t.Errorf("%q: %q, want %q (%s)", row.bounds, d.Contract.Network.Allow, row.want, why)
		}
	}
}

// TestBudget: of calls at the same time, no more are confirmed than a delegation has, in the whole tree below it.
// TestInherit: a sub-agent has all of its caller or of the delegation that its task came under, and nothing beyond.
func TestInherit(t *testing.T) {
	w := newWorld(t)
	ids := func(token string) []string { return []string{strings.Join(strings.Split(token, "_")[1:3], "_")} }
	flat, narrow := wide(), wide()
	flat.Depth, narrow.Allow, narrow.Danger = 0, []contract.Pattern{"local.read_*"}, 1
	gone := w.give(t, "", parent, wide())
	if _, _, err := delegation.Revoke(t.Context(), w.Log, ids(gone)[0], parent); err != nil {
		t.Fatal(err)
	}
	for why, row := range map[string]struct {
		by         call.Principal
		under      []string
		want       string // of the new delegation
		capability call.Capability
		against    string // of the call
	}{
		"control: of a principal":     {parent, nil, "", "local.write_x", ""},
		"stricter for the principal":  {parent, nil, "", "local.secret", "rule.deny"},
		"control: under a delegation": {child, ids(w.give(t, "", parent, narrow)), "", "local.read_x", ""},
		"beyond the delegation": {child, ids(w.give(t, "", parent, narrow)), "", "local.write_x",
			"delegation.capability"},
		"below a depth of none":   {child, ids(w.give(t, "", parent, flat)), "delegation.depth", "", ""},
		"of another":              {parent, ids(w.give(t, "", parent, wide())), "delegation.principal", "", ""},
		"of one that was revoked": {child, ids(gone), delegation.CodeRevoked, "", ""},
	} {
		link, against, err := w.Inherit(t.Context(), row.by, row.under, "agent:x")
		if err != nil || (against == nil) != (row.want == "") || against != nil && against.Code != row.want {
			t.Errorf("%s: %v %v", why, against, err)
		}
		if row.want != "" || against != nil {
			continue
		}
		c := asks("", row.capability, "{}")
		c.Principal, c.Chain = "agent:x", []string{link.ID}
		if _, code := w.call(t, c); code != row.against {
			t.Errorf("%s: %s is refused by %q, want %q", why, row.capability, code, row.against)
		}
	}
}

// TestAuthority: a decision names whose limits the call draws on, beside those of its own principal.
func TestAuthority(t *testing.T) {
	w := newWorld(t)
	top, r := w.give(t, "", parent, wide()), wide()
	r.For, r.Depth = "token:grandchild", 0
	c := asks(w.give(t, top, child, r), "local.read_x", `{}`)
	c.Principal = r.For
	for token, want := range map[string][]call.Principal{c.Delegation: {parent, child}, "": nil} {
		c.Delegation = token
		if d, why := w.call(t, c); why != "" || !slices.Equal(d.Authority, want) {
			t.Errorf("%v %q, want %v", d.Authority, why, want)
		}
	}
}

func TestBudget(t *testing.T) {
	w := newWorld(t)
	r := wide()
	r.Calls = 5
	top := w.give(t, "", parent, r)
	r.Depth = 0
	tokens := []string{top, w.give(t, top, child, r), w.give(t, top, child, r)}
	var mu sync.Mutex
	var all sync.WaitGroup
	passed, codes := 0, map[string]int{}
	for n := range 60 {
		all.Go(func() {
			_, why := w.call(t, asks(tokens[n%3], "local.read_x", `{}`))
			mu.Lock()
			defer mu.Unlock()
			if why == "" {
				passed++
			} else {
				codes[why]++
			}
		})
	}
	all.Wait()
	if passed != 5 || codes["delegation.budget"] != 55 {
		t.Errorf("%d calls passed, %v", passed, codes)
	}
}

// TestRevokedUnderWay: a revocation ends the calls under way of the tree, and no other.
func TestRevokedUnderWay(t *testing.T) {
	w := newWorld(t)
	top := w.give(t, "", parent, wide())
	r := wide()
	r.Depth = 0
	below := w.give(t, top, child, r)
	beside := w.give(t, "", parent, wide())
	bound := map[string]context.Context{}
	for name, token := range map[string]string{"top": top, "below": below, "beside": beside} {
		under, why := w.Under(t.Context(), asks(token, "local.read_x", `{}`))
		if why != nil {
			t.Fatal(why)
		}
		ctx, done := w.Bind(t.Context(), under)
		defer done()
		bound[name] = ctx
	}
	revoke(t, w, 0)
	if n := w.Live.End(t.Context(), w.Log, w.clock.at); n != 2 {
		t.Errorf("%d calls ended", n)
	}
	for name, ctx := range bound {
		why := call.Stopped(ctx)
		if ended := why != nil && why.Code == "delegation.revoked"; ended == (name == "beside") {
			t.Errorf("%s: %v", name, why)
		}
	}
}

// TestNoWider is the property: over random trees and calls, a child can do nothing that an ancestor could not.
func TestNoWider(t *testing.T) {
	w := newWorld(t)
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 1))
	pick := func(from ...string) (out []string) {
		for _, s := range from {
			if rnd.IntN(2) == 0 {
				out = append(out, s)
			}
		}
		return out
	}
	random := func() delegation.Request {
		r := delegation.Request{For: child, Lifetime: time.Duration(1+rnd.IntN(3600)) * time.Second,
			Bounds: delegation.Bounds{Danger: 1 + rnd.IntN(3), Calls: 1 + rnd.IntN(1_000_000), Depth: rnd.IntN(4),
				Hosts:   pick("*", "*.example.com", "api.example.com", "api.github.example", "*.test"),
				Secrets: pick("*", "py-key", "gh-token"), If: pick("danger < 3", "has(args.path)", "args.path == 'a'")}}
		for _, p := range pick("*", "local.*", "local.read_*", "local.read_x", "github.*", "run_python", "*_x",
			"local.drop") {
			r.Allow = append(r.Allow, contract.Pattern(p))
		}
		return r
	}
	type node struct {
		token string
		above []string
	}
	nodes := []node{}
	for range 10_000 {
		var up node
		by := parent
		if len(nodes) > 0 && rnd.IntN(4) > 0 {
			up, by = nodes[rnd.IntN(len(nodes))], child
		}
		token, _, against, err := w.Delegate(t.Context(), up.token, by, random())
		if err != nil {
			t.Fatal(err)
		}
		if against == nil {
			n := node{token: token, above: slices.Clone(up.above)}
			if up.token != "" {
				n.above = append(n.above, up.token)
			}
			nodes = append(nodes, n)
		}
	}
	deep, allowed := 0, 0
	for range 20_000 {
		n := nodes[rnd.IntN(len(nodes))]
		name := []call.Capability{"local.read_x", "local.read_y", "local.write_x", "local.drop", "local.secret", "github.get",
			"run_python"}[rnd.IntN(7)]
		args := []string{`{}`, `{"path":"a"}`, `{"path":1}`}[rnd.IntN(3)]
		decide := func(token string) policy.Decision {
			c := asks(token, name, args)
			under, why := w.Under(t.Context(), c)
			if why != nil {
				t.Fatalf("seed %d: %v", seed, why)
			}
			return w.Decide(c, under)
		}
		got := decide(n.token)
		if got.Effect > policy.Deny {
			allowed++
		}
		own := w.Policy.Decide(call.Call{Capability: name, Args: asks("", name, args).Args, Principal: parent,
			Channel: "mcp"})
		for _, other := range append([]policy.Decision{own}, decided(n.above, decide)...) {
			deep++
			wider := func(h string) bool { return !reaches(other.Contract.Network.Allow, h) }
			if got.Effect > other.Effect || got.Effect != policy.Deny && slices.ContainsFunc(got.Contract.Network.Allow, wider) {
				t.Fatalf("seed %d: %s %s: %s with %q, and an ancestor %s with %q", seed, name, args, got.Effect,
					got.Contract.Network.Allow, other.Effect, other.Contract.Network.Allow)
			}
		}
	}
	if len(nodes) < 100 || deep < 20_200 || allowed < 500 {
		t.Errorf("seed %d: %d delegations, %d comparisons, %d allowed: the test shows nothing", seed, len(nodes),
			deep, allowed)
	}
}

func decided(tokens []string, decide func(string) policy.Decision) (out []policy.Decision) {
	for _, token := range tokens {
		out = append(out, decide(token))
	}
	return out
}

// reaches reports whether one of the lines is for the host of a line: the same, or a wildcard above it.
func reaches(lines []string, line string) bool {
	return slices.ContainsFunc(lines, func(l string) bool {
		return l == line || strings.HasPrefix(l, "*.") && strings.HasSuffix(line, l[1:])
	})
}

// FuzzRequest states that a request that is read has only known members, and that its record can be taken exactly
// where it is sound: it never panics, and a second reading gives the same.
func FuzzRequest(f *testing.F) {
	f.Add(`{"allow":["a.*"],"danger":1,"calls":1,"lifetime":"1h","for":"os:1"}`)
	f.Add(`{"allow":["*"],"if":["true"],"hosts":["*"],"secrets":["*"],"danger":3,"calls":9,"depth":2,"lifetime":"1m"}`)
	f.Add(`{"Allow":[]}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := delegation.ParseRequest([]byte(text))
		if err != nil {
			return
		}
		b, err := json.Marshal(r.Bounds)
		if err != nil {
			t.Fatal(err)
		}
		var again delegation.Bounds
		if err := json.Unmarshal(b, &again); err != nil || fmt.Sprint(again) != fmt.Sprint(r.Bounds) {
			t.Errorf("%s: %v", b, err)
		}
		var l delegation.Ledger
		now := time.Unix(0, 0).UTC()
		rec := delegation.Record{Action: delegation.Created, ID: id.New(id.Delegation), By: parent, For: r.For,
			Token:  "sha256:0",
			Bounds: &r.Bounds, Created: now, Expires: now.Add(r.Lifetime)}
		if l.Take(1, rec) == nil && (len(r.Allow) == 0 || r.Danger < 1 || r.Danger > 3 || r.Calls < 1 || r.Depth < 0 ||
			r.For == "" || r.Lifetime <= 0 || r.Lifetime > delegation.MaxLifetime) {
			t.Errorf("%+v was taken", r)
		}
	})
}

// FuzzToken states that a token that is read names an id, and that no other text names the same token.
func FuzzToken(f *testing.F) {
	f.Add("waldo_dg_2al2zv4myiz6w5ozfkbizmqydk_fyx4evzsoarnmgjbcdu6tybyo2xaqqaem3vhca4ojei72tewu2ja")
	f.Add("waldo_dg_")
	f.Fuzz(func(t *testing.T, text string) {
		n, why := delegation.ParseToken(text)
		if (why == nil) != id.Is(id.Delegation, n) || why == nil && !strings.HasPrefix(text, "waldo_"+n+"_") {
			t.Errorf("%q: %q %v", text, n, why)
		}
	})
}

// TestEmptyToken: an empty token is a malformed one, and never none at all.
func TestEmptyToken(t *testing.T) {
	if _, why := newWorld(t).Enter(t.Context(), "", call.Proof{}, parent); why == nil ||
		why.Code != "delegation.malformed" {
		t.Errorf("%+v", why)
	}
}
