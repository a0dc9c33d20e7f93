package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"waldo/internal/core/policy"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// Offer lists what one server offers beside its tools: prompts, resources and templates of
// resources, each as the server gave it. It starts the server if need be.
func (m *Manager) Offer(ctx context.Context, name string) (prompts, resources, templates []strictjson.Value, err error) {
	s := m.servers[name]
	if s == nil {
		return nil, nil, nil, fmt.Errorf("no server is called %q", name)
	}
	if resources, err = s.offer(ctx, true); err != nil {
		return nil, nil, nil, unrested(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return sound(s.pins.prompts), resources, sound(s.pins.templates), nil
}

// offer lists prompts and templates, which it compares with the accepted or first seen ones, and resources if they
// are wanted. Resources are data and have no pins; a server that differs from the accepted one gives none.
func (s *server) offer(ctx context.Context, wanted bool) (resources []strictjson.Value, err error) {
	ses, ctx, over, err := s.toList(ctx)
	if err != nil {
		return nil, err
	}
	defer over()
	var asked, templs []strictjson.Value
	if ses.can.prompts {
		if asked, err = ses.known(ctx, "prompts/list", "prompts"); err != nil {
			return nil, err
		}
	}
	if ses.can.resources {
		if templs, err = ses.known(ctx, "resources/templates/list", "resourceTemplates"); err != nil {
			return nil, err
		}
		if wanted {
			if resources, err = ses.known(ctx, "resources/list", "resources"); err != nil {
				return nil, err
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := func(method string) call.Capability { return call.Capability(s.cfg.Name + "." + method) }
	prompts := s.nameable("offer.name", offers(of("prompts/get"), "name", asked))
	templates := s.nameable("offer.name", offers(of("resources/read"), "uriTemplate", templs))
	if !s.pins.takeOffers(s.cfg, ses.name, prompts, templates, s.m.lock.Load()) {
		return nil, nil
	}
	return resources, nil
}

// known is pages of a list that servers promise and some do not know: then it is empty.
func (ses *session) known(ctx context.Context, method, key string) ([]strictjson.Value, error) {
	list, err := ses.pages(ctx, method, key)
	if none := (*jsonrpc.Error)(nil); errors.As(err, &none) && none.Code == jsonrpc.CodeNoMethod {
		return nil, nil
	}
	return list, err
}

// withheld returns an outcome if the subject of a call without a tool is hidden from agents; otherwise nil. A prompt
// must be one that the server lists.
func (s *server) withheld(ctx context.Context, method string, d policy.Decision) *call.Outcome {
	no := func(o call.Outcome) *call.Outcome { return &o }
	if l := s.m.lock.Load(); l != nil {
		if was, locked := l.Servers[s.cfg.Name]; locked && was.Command != lockfile.Command(s.cfg) {
			return no(refused("lock.server", "the server is started in another way than was accepted"))
		}
	}
	args, _ := d.Call.Args.Value().Members()
	ref, _ := args["ref"].Members()
	name, isPrompt := ref["name"].Text()
	if method == "prompts/get" {
		name, isPrompt = args["name"].Text()
	}
	uri, isTemplate := ref["uri"].Text()
	if !isPrompt && !isTemplate {
		return nil
	}
	s.mu.Lock()
	listed := s.pins.offered
	s.mu.Unlock()
	if !listed {
		if _, err := s.offer(ctx, false); err != nil {
			s.warn(ctx, "prompts could not be listed", err)
			return no(s.unasked(ctx, d, err))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list, key := s.pins.prompts, name
	if !isPrompt {
		list, key = s.pins.templates, uri
	}
	i := slices.IndexFunc(list, func(def *definition) bool { return def.name == key })
	switch {
	case i >= 0 && list[i].why != "":
		return no(refused(list[i].code, inQuarantine(s.cfg.Name, list[i].why)))
	case i < 0 && isPrompt:
		return no(refused("upstream.no_prompt", "the server has no such prompt"))
	}
	return nil
}

// offers reads a list of prompts or templates, named by key. It drops entries without a name. If two entries share a
// name, it quarantines the first and drops the second. It quarantines an entry that was not read whole.
func offers(capability call.Capability, key string, list []strictjson.Value) []*definition {
	var out []*definition
	byName := map[string]*definition{}
	for _, v := range list {
		m, _ := v.Members()
		name, _ := m[key].Text()
		if first := byName[name]; first != nil {
			first.quarantine("offer.twice", "the server lists two of this name")
		}
		if name == "" || byName[name] != nil {
			continue
		}
		byName[name] = &definition{name: name, offer: true, raw: v, tool: call.Tool{Capability: capability, Digest: v.Digest()}}
		if bytes.Contains(v.Raw(), tooDeep) {
			byName[name].quarantine("offer.deep", fmt.Sprintf("its definition nests deeper than %d", strictjson.MaxDepth))
		}
		out = append(out, byName[name])
	}
	return out
}
