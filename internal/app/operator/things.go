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
	"waldo/internal/core/audit"
	"waldo/internal/frontend/console"
	"waldo/internal/model/call"
	"waldo/internal/storage/sandboxes"
)

// Stop satisfies console.Backend, as waldo stop does.
func (p *Operator) Stop(ctx context.Context, who console.Who, name string, release bool) error {
	if name == "" || len(name) > 512 {
		return console.Problemf(http.StatusBadRequest, "name", "name a session, a principal, or *")
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
	if err := p.o.Forget(ctx, name); err != nil {
		return err
	}
	_, silent, err := control.Put(ctx, p.o.Store, control.Stop+name, control.Order{})
	if err == nil && silent > 0 {
		err = console.Problemf(http.StatusAccepted, "stop.silent",
			"%d waldo did not answer yet; the stop is in force", silent)
	}
	return err
}

// Sandboxes satisfies console.Backend.
func (p *Operator) Sandboxes(ctx context.Context) (console.List[console.Sandbox], error) {
	out := console.List[console.Sandbox]{Items: []console.Sandbox{}}
	all, err := p.sandboxes.List(ctx, p.o.Owner)
	for _, b := range all {
		out.Items = append(out.Items, console.Sandbox{
			Name: b.Name, ID: b.ID, State: string(b.State), Isolation: b.Isolation, Template: b.Template, Running: b.Running,
			Runs: b.Runs, Created: b.Created, Used: b.Used,
		})
	}
	return out, err
}

// SandboxAct satisfies console.Backend. Stop ends the commands that run.
func (p *Operator) SandboxAct(ctx context.Context, _ console.Who, name, act string) (err error) {
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
		return console.Problemf(http.StatusNotFound, "act", "a sandbox is paused, resumed or stopped")
	}
	switch {
	case errors.Is(err, sandboxes.ErrAbsent):
		return console.Problemf(http.StatusNotFound, "sandbox.unknown", "no such sandbox")
	case errors.Is(err, sandboxes.ErrStopped), errors.Is(err, sandboxes.ErrPaused), errors.Is(err, sandboxes.ErrBusy):
		return console.Problemf(http.StatusConflict, "sandbox.state", "%v", err)
	}
	return err
}

// Upstreams satisfies console.Backend. Health is that of the newest calls of each server.
func (p *Operator) Upstreams(ctx context.Context) (console.List[console.Upstream], error) {
	out := console.List[console.Upstream]{Items: []console.Upstream{}}
	if err := p.index.use(ctx); err != nil {
		return out, err
	}
	cfg := p.o.Config()
	by := map[string]*console.Upstream{}
	for _, name := range slices.Sorted(maps.Keys(cfg.Servers)) {
		s := cfg.Servers[name]
		u := &console.Upstream{
			Name: name, Placement: cmp.Or(s.Placement, "sandbox"), Target: cmp.Or(s.URL, strings.Join(s.Command, " ")),
			Tools: p.o.Tools(name), Health: "unused",
		}
		if s.URL != "" {
			u.Placement = "url"
		}
		by[name] = u
	}
	pol := p.o.Policy()
	servers := map[string]string{}
	p.index.newest(func(c console.Call) bool {
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
		case c.Status == "ok" && u.LastOK == "":
			u.LastOK = c.At
		case (c.Status == "failed" || c.Status == "timeout") && u.LastFault == "":
			u.LastFault, u.Why = c.At, c.Status+" in "+c.Capability
		}
		if u.Health == "unused" && c.Status != "" && c.Effect != "deny" && c.Status != "waiting" && c.Status != "denied" {
			u.Health = map[bool]string{true: "ok", false: "failing"}[c.Status == "ok"]
		}
		return true
	})
	for _, name := range slices.Sorted(maps.Keys(by)) {
		out.Items = append(out.Items, *by[name])
	}
	return out, nil
}

// pinsLife is how long a look at the servers is believed: a look starts each of them.
const pinsLife = time.Minute

// pinned caches the last look at the servers.
type pinned struct {
	mu   sync.Mutex
	at   time.Time
	list []console.Pin
}

// Pins satisfies console.Backend, as waldo lock does.
func (p *Operator) Pins(ctx context.Context) (console.List[console.Pin], error) {
	p.pinned.mu.Lock()
	defer p.pinned.mu.Unlock()
	if time.Since(p.pinned.at) > pinsLife {
		list, err := p.o.Pins(ctx)
		if err != nil {
			return console.List[console.Pin]{Items: []console.Pin{}}, err
		}
		p.pinned.list, p.pinned.at = list, time.Now()
	}
	return console.List[console.Pin]{Items: append([]console.Pin{}, p.pinned.list...)}, nil
}

// Verify satisfies console.Backend, as waldo log verify does.
func (p *Operator) Verify(ctx context.Context) (json.RawMessage, error) {
	anchors, err := p.o.Anchors(ctx)
	if err != nil {
		return nil, err
	}
	report, err := audit.Verify(ctx, audit.Dir(p.o.Store.Dir()), anchors, time.Now(), p.o.Config().Approval.Root, p.o.Root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, console.Problemf(http.StatusNotFound, "log", "no log yet")
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(report)
}
