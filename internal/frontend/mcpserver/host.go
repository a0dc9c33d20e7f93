package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"waldo/internal/frontend/mcpserver/tasks"
	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// host is the agent's host during one call: it is asked, and told how far the call is. A legacy host
// is asked with a request of its own; a modern one through the answer to the call (parked).
type host struct {
	s   *Session
	can call.Abilities
	p   *suspendedCall // nil: legacy, and no task

	until time.Time // for how long a human can keep the request of a legacy host waiting

	mu    sync.Mutex
	call  call.Call
	task  *tasks.Task                 // that the call runs as; nil: none
	link  Link                        // of the request that is being answered; nil outside a request
	token strictjson.Value            // for progress, of that request
	given map[string]strictjson.Value // answers that came before they were asked for
	done  float64                     // told last
	told  int                         // how often, in this second
	since time.Time
}

// hosted makes the host of a request and the context for its call.
func (s *Session) hosted(ctx context.Context, m jsonrpc.Message, modern bool, link Link) (context.Context, *host) {
	h := &host{s: s, link: link, can: s.abilities(m, modern), until: time.Now().Add(s.d.o.HostWait)}
	h.begin(m, link)
	h.given, _ = m.Param("inputResponses").Members()
	if !h.token.IsZero() || modern { // a retry may bring a token
		ctx = call.WithProgress(ctx, h.progress)
	}
	return call.WithHost(ctx, h), h
}

// begin makes a request the one that is being answered.
func (h *host) begin(m jsonrpc.Message, link Link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.link, h.token = link, strictjson.Value{}
	if t := meta(m, "progressToken"); !t.IsZero() && (t.Kind() == '"' || t.Kind() == '0') {
		h.token = t
	}
}

func (h *host) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.link = nil
}

// levels of log messages, the least first (RFC 5424).
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// abilities are what the client said that it answers: in initialize, or in this very request.
func (s *Session) abilities(m jsonrpc.Message, modern bool) call.Abilities {
	s.mu.Lock()
	declared, log := s.declared, s.level
	s.mu.Unlock()
	if modern {
		declared = meta(m, jsonrpc.MetaCapabilities)
		log, _ = meta(m, jsonrpc.MetaLogLevel).Text()
	}
	all, _ := declared.Members()
	object := func(name string) strictjson.Value {
		if _, ok := all[name].Members(); ok {
			return all[name]
		}
		return strictjson.Value{}
	}
	if !slices.Contains(levels, log) {
		log = ""
	}
	return call.Abilities{
		Elicitation: object("elicitation"), Sampling: object("sampling"), Roots: object("roots"), Log: log, Legacy: !modern,
	}
}

// Abilities satisfies call.Host.
func (h *host) Abilities() call.Abilities { return h.can }

// sampling is the question that a model reads, as it reads results; the others are for a person.
const sampling = "sampling/createMessage"

// Ask satisfies call.Host.
func (h *host) Ask(
	ctx context.Context, server string, asked map[string]call.Question,
) (map[string]strictjson.Value, error) {
	shown := map[string]call.Question{}
	for key, q := range asked {
		if !q.Params.IsZero() {
			h.mu.Lock()
			c := h.call
			h.mu.Unlock()
			if q.Params = h.s.d.o.Pipeline.Scrub(c, q.Params, q.Method != sampling); q.Params.IsZero() {
				return nil, errors.New("the question cannot be shown")
			}
		}
		shown[key] = q
	}
	return h.put(ctx, shown)
}

// put puts questions to the host as they are.
func (h *host) put(ctx context.Context, shown map[string]call.Question) (map[string]strictjson.Value, error) {
	h.mu.Lock()
	link, task := h.link, h.task
	h.mu.Unlock()
	if task != nil {
		return task.Ask(ctx, shown)
	}
	if h.p != nil {
		return h.p.ask(ctx, shown)
	}
	return askLegacy(ctx, link, shown)
}

// askLegacy asks a legacy host with requests of waldo's own.
func askLegacy(
	ctx context.Context, link Link, shown map[string]call.Question,
) (map[string]strictjson.Value, error) {
	if link == nil {
		return nil, errNobody
	}
	out := map[string]strictjson.Value{}
	for key, q := range shown {
		v, err := link.Call(ctx, q.Method, func(int64) any { return q.Params }, nil)
		var no *jsonrpc.Error
		if errors.As(err, &no) {
			return nil, &call.Fault{Code: no.Code, Message: no.Message, Data: no.Data}
		}
		if err != nil {
			return nil, err
		}
		out[key] = v
	}
	return out, nil
}

var errNobody = errors.New("the client cannot be asked")

// Log satisfies call.Host. The message is redacted like a result of the call.
func (h *host) Log(server, level string, params strictjson.Value) {
	h.mu.Lock()
	link, c := h.link, h.call
	h.mu.Unlock()
	if link == nil {
		return
	}
	m, _ := params.Members()
	said, err := call.ArgsOf(map[string]any{"data": m["data"]})
	if err != nil {
		return
	}
	shown, _ := h.s.d.o.Pipeline.Scrub(c, said.Value(), false).Members()
	if shown["data"].IsZero() {
		return
	}
	link.Notify("notifications/message", map[string]any{"level": level, "logger": server, "data": shown["data"]})
}

// maxProgress bounds the progress notifications to a client in one second.
const maxProgress = 20

// progress tells the client how far a call is, in growing numbers.
func (h *host) progress(done, total float64, text string) {
	h.mu.Lock()
	link, token, now := h.link, h.token, time.Now()
	first := h.since.IsZero()
	if now.Sub(h.since) >= time.Second {
		h.since, h.told = now, 0
	}
	tell := link != nil && !token.IsZero() && (first || done > h.done) && h.told < maxProgress
	if tell {
		h.done = done
		h.told++
	}
	h.mu.Unlock()
	if !tell {
		return
	}
	params := map[string]any{"progressToken": token, "progress": done}
	if total > 0 {
		params["total"] = total
	}
	if text != "" {
		params["message"] = text
	}
	link.Notify("notifications/progress", params)
}

// setLevel takes the least level of log messages that a legacy client wants.
func (s *Session) setLevel(m jsonrpc.Message) (map[string]any, error) {
	level, _ := m.Param("level").Text()
	if !slices.Contains(levels, level) {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams,
			"a level is one of debug, info, notice, warning, error, critical, alert and emergency")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.level = level
	return map[string]any{}, nil
}

// NewTools tells the hosts that want log messages that tools appeared which the operator must accept first: the name of
// one, and how many. A host hears of tools that its agent may use.
func (d *Server) NewTools(first call.Capability, n int) {
	text := fmt.Sprintf("%s is new and cannot be called until the operator accepts it (waldo lock)", first)
	if n > 1 {
		text = fmt.Sprintf("%s is one of %d new definitions that cannot be used until the operator accepts them (waldo lock)",
			first, n)
	}
	d.mu.Lock()
	sessions := slices.Collect(maps.Keys(d.sessions))
	d.mu.Unlock()
	for _, s := range sessions {
		s.mu.Lock()
		least := slices.Index(levels, s.level)
		s.mu.Unlock()
		if least >= 0 && least <= slices.Index(levels, "notice") && d.lists().Why(s.viewer(), first) == lockNew {
			s.stream.Notify("notifications/message", map[string]any{"level": "notice", "logger": "waldo", "data": text})
		}
	}
}

// lockNew is the code of a tool that was never accepted.
const lockNew = "lock.new"
