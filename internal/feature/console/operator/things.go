package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"waldo/internal/app/control"
	"waldo/internal/core/effects"
	"waldo/internal/feature/console/site"
	"waldo/internal/model/call"
	"waldo/internal/storage/breakers"
	"waldo/internal/storage/database"
	"waldo/internal/storage/presence"
	"waldo/internal/storage/sandboxes"
)

// Stop satisfies site.Backend, as waldo stop does.
func (p *Operator) Stop(ctx context.Context, who site.Who, name string, release bool) error {
	if name == "" || len(name) > 512 {
		return site.Problemf(http.StatusBadRequest, "name", "name a session, a principal, or *")
	}
	err := control.RecordSync(ctx, p.o.Log, control.KindStop, map[string]any{
		"name": name, "release": release, "by": who.Principal,
	})
	if err != nil {
		return err
	}
	if release {
		_, _, err = control.Release(ctx, p.o.Store, name)
		return err
	}
	if err := p.o.Waldo.ForgetCLI(ctx, name); err != nil {
		return err
	}
	_, silent, err := control.Put(ctx, p.o.Store, control.Stop+name, control.Order{})
	if err == nil && silent > 0 {
		err = site.Problemf(http.StatusAccepted, "stop.silent",
			"%d waldo did not answer yet; the stop is in force", silent)
	}
	return err
}

// Sandboxes satisfies site.Backend.
func (p *Operator) Sandboxes(ctx context.Context) (site.List[site.Sandbox], error) {
	out := site.List[site.Sandbox]{Items: []site.Sandbox{}}
	all, err := p.sandboxes.List(ctx, p.o.Owner)
	for _, b := range all {
		out.Items = append(out.Items, site.Sandbox{
			Name: b.Name, ID: b.ID, State: string(b.State), Isolation: b.Isolation, Template: b.Template, Running: b.Running,
			Runs: b.Runs, Created: b.Created, Used: b.Used,
		})
	}
	return out, err
}

// SandboxAct satisfies site.Backend. Stop ends the commands that run.
func (p *Operator) SandboxAct(ctx context.Context, _ site.Who, name, act string) (err error) {
	switch act {
	case "pause":
		_, _, err = p.sandboxes.Pause(ctx, p.o.Owner, name)
	case "resume":
		_, err = p.sandboxes.Resume(ctx, p.o.Owner, name)
	case "stop":
		var all []sandboxes.Command
		all, err = p.sandboxes.Commands(ctx, p.o.Owner, name)
		for _, c := range all {
			kerr := p.sandboxes.Kill(ctx, p.o.Owner, name, c.Call)
			if kerr != nil && !errors.Is(kerr, sandboxes.ErrNoCommand) {
				err = errors.Join(err, kerr)
			}
		}
	default:
		return site.Problemf(http.StatusNotFound, "act", "a sandbox is paused, resumed or stopped")
	}
	switch {
	case errors.Is(err, sandboxes.ErrAbsent):
		return site.Problemf(http.StatusNotFound, "sandbox.unknown", "no such sandbox")
	case errors.Is(err, sandboxes.ErrStopped), errors.Is(err, sandboxes.ErrPaused), errors.Is(err, sandboxes.ErrBusy):
		return site.Problemf(http.StatusConflict, "sandbox.state", "%v", err)
	}
	return err
}

// Upstreams satisfies site.Backend. Health is that of the newest calls of each server.
func (p *Operator) Upstreams(ctx context.Context) (site.List[site.Upstream], error) {
	out := site.List[site.Upstream]{Items: []site.Upstream{}}
	if err := p.index.use(ctx); err != nil {
		return out, err
	}
	cfg := p.o.Waldo.Config()
	by, accepted := map[string]*site.Upstream{}, p.o.Waldo.Accepted()
	for _, name := range slices.Sorted(maps.Keys(cfg.Servers)) {
		s := cfg.Servers[name]
		u := &site.Upstream{
			Name: name, Placement: cmp.Or(s.Placement, "sandbox"), Target: cmp.Or(s.URL, strings.Join(s.Command, " ")),
			Tools: len(accepted.Servers[name].Tools), Health: "unused",
		}
		if s.URL != "" {
			u.Placement = "url"
		}
		by[name] = u
	}
	pol := p.o.Waldo.Policy()
	servers := map[string]string{}
	p.index.newest(func(c entry) bool {
		name, seen := servers[c.Capability]
		if !seen {
			k, _ := pol.Lookup(call.Capability(c.Capability))
			name = k.Server
			servers[c.Capability] = name
		}
		u := by[name]
		if u == nil {
			return true
		}
		switch {
		case c.answered() && u.LastOK == "":
			u.LastOK = c.At
		case c.fault() && u.LastFault == "":
			u.LastFault, u.Why = c.At, c.Status+" in "+c.Capability
		}
		if u.Health == "unused" && c.Status != "" && c.Effect != "deny" && c.Status != "waiting" && c.Status != "denied" {
			u.Health = map[bool]string{true: "ok", false: "failing"}[c.answered()]
		}
		return true
	})
	open, err := breakers.Open(ctx, p.o.Store, presence.Gone(p.o.Store))
	for _, b := range open {
		if u := by[b.Server]; u != nil && b.Fails > 0 {
			u.Failures, u.OpenUntil = max(u.Failures, b.Fails), max(u.OpenUntil, database.Stamp(b.Until))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		out.Items = append(out.Items, *by[name])
	}
	return out, err
}

// maxFaults is how many of its last faults the page of a server lists.
const maxFaults = 10

// Upstream satisfies site.Backend. It starts no server.
func (p *Operator) Upstream(ctx context.Context, name string) (site.UpstreamLife, error) {
	l := site.UpstreamLife{Definitions: []site.Definition{}, Pins: []site.Pin{}, Faults: []site.Call{}}
	all, err := p.Upstreams(ctx)
	if err != nil {
		return l, err
	}
	i := slices.IndexFunc(all.Items, func(u site.Upstream) bool { return u.Name == name })
	if i < 0 {
		return l, site.Problemf(http.StatusNotFound, "server.unknown", "the configuration names no such server")
	}
	l.Upstream = all.Items[i]
	l.Restarts = l.Placement != "url" && p.o.Waldo.Serves()
	counted := map[string]site.Usage{}
	for _, u := range p.usage(24, func(c entry) site.Usage { return site.Usage{Capability: c.Capability} }) {
		counted[u.Capability] = u
	}
	for _, tool := range slices.Sorted(maps.Keys(p.o.Waldo.Accepted().Servers[name].Tools)) {
		one := site.Definition{Usage: counted[name+"."+tool], Approval: "denied: no contract"}
		one.Capability = name + "." + tool
		if c, ok := p.o.Waldo.Policy().Lookup(call.Capability(one.Capability)); ok {
			one.Mode, one.Danger, one.File, one.Line = c.Mode.String(), c.Danger, c.At.File, c.At.Line
			if one.Approval = asks(c.Approval); c.Denied {
				one.Approval = "denied"
			}
		}
		l.Definitions = append(l.Definitions, one)
	}
	fate, err := p.fates(ctx)
	if err != nil {
		return l, err
	}
	p.index.newest(func(e entry) bool {
		if strings.HasPrefix(e.Capability, name+".") && e.fault() {
			l.Faults = append(l.Faults, fate.of(e))
		}
		return len(l.Faults) < maxFaults
	})
	reached, err := p.Egress(ctx, site.EgressFilter{Server: name})
	l.Egress = reached.Items
	p.pinned.mu.Lock()
	defer p.pinned.mu.Unlock()
	l.Looked = !p.pinned.at.IsZero()
	for _, one := range p.pinned.list {
		if one.Server == name {
			l.Pins = append(l.Pins, one)
		}
	}
	return l, err
}

// Restart satisfies site.Backend.
func (p *Operator) Restart(_ context.Context, name string) error {
	if !p.o.Waldo.Serves() {
		return site.Problemf(http.StatusConflict, "server.elsewhere",
			"the servers of agents belong to waldo serve; its own console, at the address that it listens on, restarts them")
	}
	if !p.o.Waldo.Restart(name) {
		return site.Problemf(http.StatusNotFound, "server.unknown", "the configuration names no such server")
	}
	return nil
}

// Egress satisfies site.Backend.
func (p *Operator) Egress(ctx context.Context, f site.EgressFilter) (site.List[site.Egress], error) {
	out := site.List[site.Egress]{Items: []site.Egress{}}
	if err := p.index.use(ctx); err != nil {
		return out, err
	}
	p.index.mu.Lock()
	for _, e := range p.index.egress {
		if (f.Server == "" || e.Server && e.By == f.Server) && holds(f.Text, e.Host, e.By, e.Agent, e.Why) &&
			(f.Result == "" || f.Result == e.Result()) {
			out.Items = append(out.Items, *e)
		}
	}
	p.index.mu.Unlock()
	slices.SortFunc(out.Items, func(a, b site.Egress) int {
		if a.Allowed != b.Allowed {
			return map[bool]int{true: 1, false: -1}[a.Allowed]
		}
		return cmp.Or(strings.Compare(b.Last, a.Last), strings.Compare(a.Host, b.Host), strings.Compare(a.By, b.By))
	})
	if out.Total = len(out.Items); out.Total > maxShown {
		out.Items = out.Items[:maxShown]
	}
	return out, nil
}

// maxShown is how many rows of attempts one answer has.
const maxShown = 500

// pinsLife is how long a look at the servers is believed: a look starts each of them.
const pinsLife = time.Minute

// pinned caches the last look at the servers.
type pinned struct {
	mu   sync.Mutex
	at   time.Time
	list []site.Pin
}

// Pins satisfies site.Backend, as waldo lock does.
func (p *Operator) Pins(ctx context.Context) (site.List[site.Pin], error) {
	p.pinned.mu.Lock()
	defer p.pinned.mu.Unlock()
	if time.Since(p.pinned.at) > pinsLife {
		list, err := p.o.Waldo.Pins(ctx)
		if err != nil {
			return site.List[site.Pin]{Items: []site.Pin{}}, err
		}
		p.pinned.list, p.pinned.at = list, time.Now()
	}
	return site.List[site.Pin]{Items: append([]site.Pin{}, p.pinned.list...)}, nil
}

// Unsettled satisfies site.Backend.
func (p *Operator) Unsettled(ctx context.Context) (site.List[site.Unsettled], error) {
	l := site.List[site.Unsettled]{Items: []site.Unsettled{}}
	b := &effects.Book{Store: p.o.Store, Gone: presence.Gone(p.o.Store)}
	all, err := b.Pending(ctx)
	for _, e := range all {
		l.Items = append(l.Items, site.Unsettled{CallID: e.ID, Capability: string(e.Capability), Principal: string(e.Principal),
			At: database.Stamp(e.At)})
	}
	return l, err
}

// Verify satisfies site.Backend, as waldo log verify does.
func (p *Operator) Verify(ctx context.Context) (json.RawMessage, error) {
	report, err := p.o.Waldo.VerifyLog(ctx)
	if errors.Is(err, os.ErrNotExist) {
		return nil, site.Problemf(http.StatusNotFound, "log", "no log yet")
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(report)
}
