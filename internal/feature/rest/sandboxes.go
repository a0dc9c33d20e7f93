package rest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"waldo/internal/app"
	"waldo/internal/frontend/mcpserver/web"
	"waldo/internal/model/call"
	"waldo/internal/model/id"
	"waldo/internal/sandbox"
	"waldo/internal/storage/sandboxes"
)

// Limits of named sandboxes.
const (
	maxSandboxes = 100 // of one principal
	idle         = time.Hour
)

// kept is a named sandbox as it is shown.
type kept struct {
	Name    string          `json:"name"`
	ID      string          `json:"id"`
	State   sandboxes.State `json:"state"`
	Created time.Time       `json:"created"`
}

// usable returns an error where a client cannot run a command in a sandbox: by the contracts, or by its delegation.
func (s *server) usable(ctx context.Context, by client) error {
	now := s.h.InForce()
	if !now.Policy.Usable("exec", by.who, channel) {
		return wrong(403, "denied", "the contracts do not allow %s exec", by.who)
	}
	link, err := s.link(ctx, by)
	if c, _ := now.Policy.Lookup("exec"); err == nil && !link.Lists("exec", c.Danger) {
		err = wrong(403, "delegation.capability", "%s does not allow exec", link.ID)
	}
	return err
}

// create keeps a new sandbox on the machine's own root. A client that cannot run a command gets none.
func (s *server) create(by client, r *http.Request, body []byte) (answer, error) {
	var in struct {
		Name string `json:"name"`
	}
	if err := read(body, &in); err != nil {
		return answer{}, err
	}
	if err := s.usable(r.Context(), by); err != nil {
		return answer{}, err
	}
	m, who := s.h.NamedSandboxes(), by.who
	s.mu.Lock() // so that none is above the limit
	defer s.mu.Unlock()
	all, err := m.List(r.Context(), string(who))
	if err != nil {
		return answer{}, err
	}
	if len(all) >= maxSandboxes {
		return answer{}, wrong(409, "too_many", "%s has %d sandboxes: remove one first", who, len(all))
	}
	is, err := m.Create(r.Context(), s.h.NewSandbox(string(who), in.Name, idle))
	if err != nil {
		return answer{}, inWords(err)
	}
	err = s.h.RecordSandbox(r.Context(), app.SandboxRecord{Op: "create", Sandbox: is.ID, Principal: is.Owner})
	if err != nil {
		return answer{}, errors.Join(err, m.Remove(r.Context(), is.Owner, is.ID, true))
	}
	return answer{status: http.StatusCreated, value: kept{is.Name, is.ID, is.State, is.Created}}, nil
}

// remove removes a sandbox with its files, and ends its commands.
func (s *server) remove(by client, r *http.Request, _ []byte) (answer, error) {
	link, err := s.link(r.Context(), by)
	if err == nil && link != nil {
		err = s.usable(r.Context(), by)
	}
	if err != nil {
		return answer{}, err
	}
	m := s.h.NamedSandboxes()
	is, err := m.Get(r.Context(), string(by.who), r.PathValue("name"))
	if err == nil { // recorded first: its files are what shows what was done in it
		err = s.h.RecordSandbox(r.Context(), app.SandboxRecord{Op: "remove", Sandbox: is.ID, Principal: is.Owner})
	}
	if err == nil {
		err = m.Remove(r.Context(), is.Owner, is.ID, true)
	}
	return answer{status: http.StatusNoContent}, inWords(err)
}

// exec runs one command in a sandbox and answers when it has ended.
func (s *server) exec(by client, r *http.Request, body []byte) (a answer, err error) {
	var in struct {
		asked
		Argv []string `json:"argv"`
	}
	if err := read(body, &in); err != nil {
		return a, err
	}
	if len(in.Argv) == 0 || in.Argv[0] == "" {
		return a, wrong(400, "argv", "argv: give a command and its arguments")
	}
	args, err := call.ArgsOf(map[string]any{"argv": in.Argv})
	if err != nil {
		return a, wrong(400, "argv", "%v", err)
	}
	now, m, who := s.h.InForce(), s.h.NamedSandboxes(), by.who
	c := call.Call{ID: id.New(id.Call), Capability: "exec", Args: args, Principal: who, Channel: channel,
		ApprovalID: in.Approval, Key: keyOf(r), Delegation: by.token, Proof: by.proof, Trace: web.TraceOf(r.Header)}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	run, err := m.Begin(ctx, string(who), r.PathValue("name"), c.ID, false)
	if err != nil {
		return a, inWords(err)
	}
	defer func() { err = errors.Join(err, run.End(context.WithoutCancel(ctx))) }()
	run.Tell(strings.Join(in.Argv, " "))
	if c.Session, err = s.h.SessionOf(run.Sandbox); err != nil {
		return a, err
	}
	o, err := now.InSandbox(run.Sandbox)
	if err != nil {
		return a, err
	}
	o.NoTools, o.Started = true, func(b sandbox.Sandbox) func() { return run.Watch(b, cancel) }
	c.Run = o.Request()
	defer now.Runner.Attach(c.ID, o.Streams)()
	result, err := now.Broker.Call(ctx, c)
	return answerOf(result), err
}
