package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"waldo/internal/core/policy"
	"waldo/internal/executor/upstream/bounds"
	"waldo/internal/executor/upstream/content"
	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// Limits on the questions of a server during one call.
const (
	maxAsks     = 10
	maxStanding = time.Hour // the channel has a shorter time of its own
	maxAnswer   = 1 << 20   // bytes of one answer
)

// The questions of MCP.
const (
	elicit = "elicitation/create"
	sample = "sampling/createMessage"
	roots  = "roots/list"
)

// running is one call under way, as far as its server may turn to the agent's host.
type running struct {
	ses   *session
	d     policy.Decision
	host  call.Host // nil: questions are refused
	clock *bounds.Clock
	over  context.Context // done when the call is; its questions end then
	mu    sync.Mutex
	asked int
	began bool // a request of the call was answered
	no    bool // the last question was declined
	notes []string
	logs  bounds.Second
}

// note adds a line to the facts.
func (r *running) note(format string, a ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, fmt.Sprintf(format, a...))
}

func fault(code int, format string, a ...any) *call.Fault {
	return &call.Fault{Code: code, Message: fmt.Sprintf(format, a...)}
}

// ask sends the server's questions to the host, if the operator allows the server to ask them and the host supports
// them. waldo answers those that it can itself.
func (r *running) ask(ctx context.Context, asked map[string]call.Question) (map[string]strictjson.Value, *call.Fault) {
	r.mu.Lock()
	r.asked += len(asked)
	over := r.asked > maxAsks
	r.mu.Unlock()
	if over {
		r.note("the server asked too often: at most %d questions are passed on in one call", maxAsks)
		return nil, fault(jsonrpc.CodeBusy, "at most %d questions are passed on in one call", maxAsks)
	}
	out, pass := map[string]strictjson.Value{}, map[string]call.Question{}
	for key, q := range asked {
		if q.Method == roots && len(r.ses.s.cfg.Asks.Roots) > 0 {
			out[key] = content.Folders(r.ses.s.cfg)
			continue
		}
		shown, no := r.permit(q)
		if no != nil {
			r.note("the server asked for %s: refused: %s", q.Method, no.Message)
			return nil, no
		}
		pass[key] = shown
	}
	if len(pass) == 0 {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxStanding)
	defer cancel()
	defer context.AfterFunc(r.over, cancel)()
	r.clock.Stop()
	defer r.clock.Start()
	answers, err := r.host.Ask(ctx, r.ses.s.cfg.Name, pass)
	var no *call.Fault
	switch {
	case errors.As(err, &no):
		r.note("the server asked the host, which refused")
		return nil, fault(no.Code, "the host refused: %.200s", no.Message)
	case err != nil:
		r.note("the server asked the host, which did not answer")
		return nil, fault(jsonrpc.CodeInternal, "there was no answer")
	}
	for key, q := range pass {
		v, ok := r.sound(q, answers[key])
		if !ok {
			r.note("the host's answer to %s is malformed", q.Method)
			return nil, fault(jsonrpc.CodeInternal, "there was no answer that fits")
		}
		out[key] = v
	}
	return out, nil
}

// permit checks that the operator lets the server ask this and that the host supports it. It returns the question as
// shown: reduced to the protocol's core fields, with the server's name.
func (r *running) permit(q call.Question) (call.Question, *call.Fault) {
	asks := r.ses.s.cfg.Asks
	var can call.Abilities
	if r.host != nil {
		can = r.host.Abilities()
	}
	members, _ := q.Params.Members()
	mode, _ := members["mode"].Text()
	var allowed, able bool
	var keep []string
	switch {
	case q.Method == elicit && (mode == "" || mode == "form"):
		allowed, able, keep = asks.Form, can.Form(), []string{"mode", "message", "requestedSchema"}
	case q.Method == elicit && mode == "url":
		allowed, able, keep = asks.URL, can.URL(), []string{"mode", "message", "url", "elicitationId"}
	case q.Method == sample:
		allowed, able, keep = asks.Sampling, !can.Sampling.IsZero(), []string{"messages", "modelPreferences", "systemPrompt", "temperature", "maxTokens", "stopSequences"}
		if m, _ := can.Sampling.Members(); !m["tools"].IsZero() {
			keep = append(keep, "tools", "toolChoice")
		}
	case q.Method == roots:
		allowed, able = asks.HostRoots, !can.Roots.IsZero()
	default:
		return q, fault(jsonrpc.CodeNoMethod, "this client does not offer %.50q", q.Method)
	}
	if !allowed {
		return q, fault(jsonrpc.CodeNoMethod, "the operator does not let this server ask for %s", q.Method)
	}
	if !able {
		return q, fault(jsonrpc.CodeNoMethod, "the agent's host does not answer %s", q.Method)
	}
	params := map[string]any{}
	for _, k := range keep {
		if v := members[k]; !v.IsZero() {
			params[k] = v
		}
	}
	if q.Method == elicit {
		if no := content.Elicitation(r.ses.s.cfg.Name, mode, members, params); no != nil {
			return q, no
		}
	}
	a, err := call.ArgsOf(params)
	if err != nil {
		return q, fault(jsonrpc.CodeParams, "the question is too large")
	}
	q.Params = a.Value()
	return q, nil
}

// sound checks an answer of the host and reduces it to the fields of the protocol.
func (r *running) sound(q call.Question, v strictjson.Value) (strictjson.Value, bool) {
	m, ok := v.Members()
	if !ok || len(v.Raw()) > maxAnswer {
		return strictjson.Value{}, false
	}
	keep := map[string][]string{
		elicit: {"action", "content"}, roots: {"roots"},
		sample: {"role", "content", "model", "stopReason"},
	}[q.Method]
	switch q.Method {
	case elicit:
		action, _ := m["action"].Text()
		ok = action == "accept" || action == "decline" || action == "cancel"
		if action != "accept" {
			keep = keep[:1]
			r.mu.Lock()
			r.no = true
			r.mu.Unlock()
		}
		r.note("the server asked the person: %s", action)
	case sample:
		_, text := m["role"].Text()
		ok = text && !m["content"].IsZero()
		r.note("the server asked the host's model")
	case roots:
		_, ok = m["roots"].Elements()
		r.note("the server asked for the host's folders")
	}
	out := map[string]any{}
	for _, k := range keep {
		if !m[k].IsZero() {
			out[k] = m[k]
		}
	}
	a, err := call.ArgsOf(out)
	return a.Value(), ok && err == nil
}

// declared returns the client capabilities announced to a server: those that the operator allows and, with a host,
// that the host supports.
func (s *server) declared(host call.Host, perCall bool) map[string]any {
	var can call.Abilities
	if host != nil {
		can = host.Abilities()
	}
	return content.Declared(s.cfg.Asks, can, perCall)
}

// asks reports whether the operator lets the server ask anything.
func (s *server) asks() bool {
	a := s.cfg.Asks
	return a.Form || a.URL || a.Sampling || a.HostRoots || len(a.Roots) > 0
}
