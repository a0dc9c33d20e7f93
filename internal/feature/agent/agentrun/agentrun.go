// Package agentrun runs the built-in agent: providers from the configuration, a session and a transcript of its own,
// calls through the pipeline.
package agentrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"waldo/internal/app"
	"waldo/internal/app/fault"
	"waldo/internal/core/audit"
	"waldo/internal/core/redact"
	"waldo/internal/core/session"
	"waldo/internal/feature/agent/loop"
	"waldo/internal/feature/agent/provider"
	"waldo/internal/feature/agent/transcript"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
	"waldo/internal/model/secret"
	"waldo/internal/network/egress"
)

// Service runs the agent of an application's configuration.
type Service struct{ *app.App }

// New returns the service of an application.
func New(h *app.App) Service { return Service{h} }

// Options are the choices for one run. Zero limits are those of the configuration.
type Options struct {
	Steps, Tokens int
	Time          time.Duration
	Watch         func(loop.Event)
}

// Run is one run of an agent.
type Run struct {
	ID    call.Session
	Who   call.Principal
	chain []string // delegations
	agent *loop.Agent
	end   func(loop.Ending) error
}

func (s Service) dir() transcript.Dir { return transcript.Dir(filepath.Join(s.State, "agents")) }

// Principal is that of the configured agent.
func (s Service) Principal() call.Principal {
	return s.Config.Gateway.Tenants.Of(call.Principal("agent:" + s.Config.Agent.Name))
}

// Start begins an agent with a task. channel is loop.Channel, or webhook for one that an event starts.
func (s Service) Start(task, channel string, o Options) (*Run, error) {
	return s.start(call.Session(id.New(id.Session)), task, channel, nil, o)
}

func (s Service) start(name call.Session, task, channel string, under []string, o Options) (*Run, error) {
	chain, err := s.chain()
	if err != nil {
		return nil, err
	}
	n, err := s.Sessions.Resume(name, s.Principal(), id.New(id.Workspace))
	if err != nil {
		return nil, err
	}
	s.Lasting(n.ID)
	f, err := s.dir().Create(string(n.ID))
	if err != nil {
		return nil, errors.Join(err, s.leave(n, nil))
	}
	a, err := loop.Start(s.options(chain, n.ID, f, o), task, n.Principal, n.Workspace, channel, under)
	if err != nil {
		return nil, errors.Join(err, s.leave(n, f))
	}
	return s.run(n, f, a, under), nil
}

// Resume goes on with an agent. more are further words of the person, or empty.
func (s Service) Resume(ctx context.Context, name, more string, o Options) (*Run, error) {
	chain, err := s.chain()
	if err != nil {
		return nil, err
	}
	f, lines, err := s.dir().Open(name)
	if err != nil {
		return nil, &fault.Error{Usage: true, Err: err, Tip: "waldo agent --list shows the agents of this state directory"}
	}
	start, _, _, err := loop.Read(lines)
	if err == nil && start.Principal != s.Principal() {
		err = fmt.Errorf("agent %s is %s, and the configuration's is %s", name, start.Principal, s.Principal())
	}
	if err != nil {
		return nil, errors.Join(fault.Usage("give the configuration that it was started with", "%v", err), f.Close())
	}
	n, err := s.Sessions.Resume(call.Session(name), start.Principal, start.Workspace)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.Lasting(n.ID)
	a, err := loop.Resume(ctx, s.options(chain, n.ID, f, o), lines, more)
	if err != nil {
		return nil, errors.Join(err, s.leave(n, f))
	}
	return s.run(n, f, a, start.Chain), nil
}

func (s Service) run(n session.Info, f *transcript.File, a *loop.Agent, under []string) *Run {
	return &Run{ID: n.ID, Who: n.Principal, chain: under, agent: a, end: func(e loop.Ending) error {
		if e == loop.Done || e == loop.Declined {
			s.Tidy(n)
		}
		return s.leave(n, f)
	}}
}

// leave closes the session in this process, and the transcript; nil: absent.
func (s Service) leave(n session.Info, f *transcript.File) error {
	s.Forget(n.ID)
	s.Sessions.Close(n.ID)
	if f == nil {
		return nil
	}
	return f.Close()
}

// Go runs the agent until it is done, a human is needed, or a limit is reached.
func (r *Run) Go(ctx context.Context) (loop.Outcome, error) {
	out, err := r.agent.Run(ctx)
	return out, errors.Join(err, r.end(out.End))
}

func (s Service) options(chain *guarded, n call.Session, f *transcript.File, o Options) loop.Options {
	cfg := s.Config.Agent
	l := loop.Limits{Steps: cfg.MaxSteps, Tokens: cfg.MaxTokens, Time: cfg.Timeout}
	if o.Steps > 0 {
		l.Steps = o.Steps
	}
	if o.Tokens > 0 {
		l.Tokens = o.Tokens
	}
	if o.Time > 0 {
		l.Time = o.Time
	}
	return loop.Options{Model: chain, Lists: s.Catalogue, Call: s.Call, Refuse: s.Refuse,
		Fate: s.fate, Hide: s.Clean, Session: n, Journal: f, Watch: o.Watch, System: cfg.System, Limits: l}
}

// chain makes the providers of the configuration.
func (s Service) chain() (*guarded, error) {
	c := &guarded{chain: &provider.Chain{Hide: s.Clean}, keys: &redact.Registry{}}
	if len(s.Config.Agent.Providers) == 0 {
		return nil, fault.Usage(`as in agent: {providers: [{kind: ollama, model: "qwen2.5:7b"}]}`,
			"waldo.yaml names no provider of a model")
	}
	for _, p := range s.Config.Agent.Providers {
		rt, err := s.transport(p)
		if err != nil {
			return nil, fault.Usage("check agent.providers", "provider %s %s: %v", p.Kind, p.Model, err)
		}
		o := provider.Options{Kind: p.Kind, URL: p.URL, Model: p.Model, Silence: p.Timeout, Transport: rt}
		if p.Key != "" {
			o.Key = func() (secret.Value, error) {
				v, err := s.Secret(p.Key)
				if err == nil {
					_ = c.keys.Add(p.Key, v) // it is added despite an error; the source reports a short key
				}
				return v, err
			}
		}
		one, err := provider.New(o)
		if err != nil {
			return nil, err
		}
		c.chain.Providers = append(c.chain.Providers, one)
	}
	return c, nil
}

// transport is the way out to the host of a provider alone.
func (s Service) transport(p contract.Provider) (http.RoundTripper, error) {
	rules, err := egress.ParseRules(s.Config.Internal)
	if err != nil {
		return nil, err
	}
	internal := func(host string) bool {
		for _, r := range rules {
			if r.Host.Match(host) {
				return true
			}
		}
		return false
	}
	return provider.Transport(provider.Address(p.Kind, p.URL), internal, s.Config.Addresses)
}

// fate looks a call up in the log.
func (s Service) fate(ctx context.Context, callID string) (f loop.Fate, err error) {
	all, err := audit.Find(ctx, audit.Dir(s.State), callID)
	for _, r := range all {
		var e audit.Ended
		switch {
		case r.Kind == audit.KindDecision && json.Unmarshal(r.Body, &e) == nil && e.CallID == callID:
			f.Decided = true
		case r.Kind == audit.KindOutcome && json.Unmarshal(r.Body, &e) == nil && e.CallID == callID:
			f.Ended, f.Status, f.SideEffect, f.ApprovalID = true, e.Status, e.Facts.SideEffect, e.ApprovalID
		}
	}
	return f, err
}

// Summary is one agent of the state directory.
type Summary struct {
	ID      string      `json:"id"`
	Task    string      `json:"task"`
	Started time.Time   `json:"started"`
	End     loop.Ending `json:"end"` // running: another process has it open; killed: it ended without a word
}

// List returns the agents of the state directory, oldest first.
func (s Service) List() ([]Summary, error) {
	names, err := s.dir().Names()
	out := []Summary{}
	for _, name := range names {
		f, lines, err := s.dir().Open(name)
		if errors.Is(err, transcript.ErrNone) {
			continue // it was killed before its first entry
		}
		if errors.Is(err, transcript.ErrBusy) {
			out = append(out, Summary{ID: name, End: "running"})
			continue
		}
		if err != nil {
			return nil, err
		}
		start, last, _, err := loop.Read(lines)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("agent %s: %w", name, err)
		}
		if last == "" {
			last = "killed"
		}
		out = append(out, Summary{name, start.Task, start.At, last})
	}
	return out, err
}
