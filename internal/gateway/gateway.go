// Package gateway is the door that agents come through: an MCP server over lines, for one session.
// It parses and limits, checks arguments against the tool's schema, binds the call to a session and a
// principal, hands it to the corridor and puts the result into MCP's form. It decides nothing.
//
// It speaks the legacy revisions, which open with initialize, and the modern one, where every
// request carries its revision; which one is meant, each request says.
package gateway

import (
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"slices"
	"sort"
	"sync"
	"time"

	"waldo/internal/call"
	"waldo/internal/catalogue"
	"waldo/internal/contract"
	"waldo/internal/jsonrpc"
	"waldo/internal/wire"
)

// Options are what a door is made of. Catalogue and Call are needed.
type Options struct {
	Version      string // of waldo
	Instructions string // how to use it, for the model; ours, never a server's
	Session      call.Session
	Principal    call.Principal
	Catalogue    *catalogue.Catalogue
	Call         func(ctx context.Context, c call.Call) (call.Result, error) // the corridor
	Mode         func(cap call.Capability) contract.Mode                     // what the contract says; nil: high risk
	Log          *slog.Logger                                                // nil: nothing is logged
	Now          func() time.Time                                            // nil: time.Now
	Drain        time.Duration                                               // for answers once the input has ended; 0: 10 s
}

// pageSize is how many tools one page of tools/list holds: enough that few hosts need a second.
const pageSize = 500

type door struct {
	o    Options
	conn *jsonrpc.Conn

	mu        sync.Mutex
	opened    bool                  // initialize was answered
	served    int                   // version of the list that the agent has seen; 0: none
	shown     map[string]string     // wire name to the digest of the definition it saw
	listening map[string]wire.Value // subscriptions to the list, by id
	waiting   map[string]string     // call to the approval it waits for
	dirty     chan struct{}
}

// Serve answers one agent until in ends or ctx is done.
func Serve(ctx context.Context, in io.Reader, out io.Writer, o Options) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Drain == 0 {
		o.Drain = 10 * time.Second
	}
	d := &door{o: o, shown: map[string]string{}, listening: map[string]wire.Value{}, waiting: map[string]string{}, dirty: make(chan struct{}, 1)}
	d.conn = jsonrpc.New(in, out, jsonrpc.Options{
		Request:       d.answer,
		Inline:        func(method string) bool { return slices.Contains(quick, method) },
		Garbage:       func(e *jsonrpc.Error) { o.Log.Warn("a frame was refused", "session", o.Session, "reason", e.Message) },
		AnswerGarbage: true, SkipLong: true, Drain: o.Drain,
	})
	stop := o.Catalogue.Watch(func() {
		select {
		case d.dirty <- struct{}{}:
		default: // it will be told anyway
		}
	})
	defer stop()
	go d.tellChanges()
	return d.conn.Serve(ctx)
}

// quick are the methods that are answered before the next message is read.
var quick = []string{"initialize", "ping", "server/discover"}

// answer answers one request.
func (d *door) answer(ctx context.Context, m jsonrpc.Message) (any, error) {
	modern, fault := revision(m)
	if fault != nil {
		return nil, fault
	}
	result, err := d.dispatch(ctx, m, modern)
	if err != nil || !modern {
		return result, err
	}
	result["resultType"] = "complete"
	meta, _ := result["_meta"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		result["_meta"] = meta
	}
	meta[jsonrpc.MetaServer] = d.self()
	return result, nil
}

func (d *door) dispatch(ctx context.Context, m jsonrpc.Message, modern bool) (map[string]any, error) {
	switch {
	case m.Method == "tools/list":
		return d.list(ctx, m, modern)
	case m.Method == "tools/call":
		return d.call(ctx, m)
	case m.Method == "ping" && !modern:
		return map[string]any{}, nil
	case m.Method == "initialize" && !modern:
		return d.initialize(m)
	case m.Method == "server/discover" && modern:
		return d.discover(), nil
	case m.Method == "subscriptions/listen" && modern:
		return d.listen(ctx, m)
	}
	return nil, jsonrpc.Errorf(jsonrpc.CodeNoMethod, "no such method: %.50q", m.Method)
}

// revision reports whether a request is of the modern kind, and refuses one that claims to be and
// is not (MCP 2026-07-28 basic/versioning).
func revision(m jsonrpc.Message) (modern bool, fault *jsonrpc.Error) {
	meta, _ := m.Param("_meta").Members()
	text, _ := meta[jsonrpc.MetaRevision].Text()
	if text < jsonrpc.Modern {
		return false, nil
	}
	if text != jsonrpc.Modern {
		return true, unsupported(text)
	}
	if _, ok := meta[jsonrpc.MetaCapabilities].Members(); !ok {
		return true, jsonrpc.Errorf(jsonrpc.CodeParams, "_meta lacks %s", jsonrpc.MetaCapabilities)
	}
	return true, nil
}

func unsupported(requested string) *jsonrpc.Error {
	e := jsonrpc.Errorf(jsonrpc.CodeUnsupported, "unsupported protocol version")
	data, err := call.ArgsOf(map[string]any{"supported": revisions(), "requested": requested})
	if err == nil {
		e.Data = data.Value()
	}
	return e
}

func revisions() []string { return append([]string{jsonrpc.Modern}, jsonrpc.LegacyRevisions...) }

func (d *door) self() jsonrpc.Implementation {
	return jsonrpc.Implementation{Name: "waldo", Version: d.o.Version}
}

func (d *door) offers() map[string]any {
	return map[string]any{"tools": map[string]any{"listChanged": true}}
}

// initialize opens a legacy session, once. A revision that is not spoken here gets the newest that is.
func (d *door) initialize(m jsonrpc.Message) (map[string]any, error) {
	revision, ok := m.Param("protocolVersion").Text()
	_, hasCapabilities := m.Param("capabilities").Members()
	_, hasClient := m.Param("clientInfo").Members()
	if !ok || !hasCapabilities || !hasClient {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "initialize needs protocolVersion, capabilities and clientInfo")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.opened {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalid, "the session is open already")
	}
	d.opened = true
	if !slices.Contains(jsonrpc.LegacyRevisions, revision) {
		revision = jsonrpc.Legacy
	}
	result := map[string]any{"protocolVersion": revision, "capabilities": d.offers(), "serverInfo": d.self()}
	if d.o.Instructions != "" {
		result["instructions"] = d.o.Instructions
	}
	return result, nil
}

func (d *door) discover() map[string]any {
	result := map[string]any{"supportedVersions": revisions(), "capabilities": d.offers(), "ttlMs": 0, "cacheScope": "private"}
	if d.o.Instructions != "" {
		result["instructions"] = d.o.Instructions
	}
	return result
}

// list answers tools/list, a page at a time. A cursor is the name of the last tool of the page before.
func (d *door) list(ctx context.Context, m jsonrpc.Message, modern bool) (map[string]any, error) {
	after := ""
	if c := m.Param("cursor"); !c.IsZero() {
		text, _ := c.Text()
		name, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || len(name) > 64 || !catalogue.Named(string(name)) {
			return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "the cursor is not one of ours")
		}
		after = string(name)
	}
	version := d.o.Catalogue.Version()
	entries := d.o.Catalogue.List(ctx)
	if v := d.o.Catalogue.Version(); v != version {
		version = v
		entries = d.o.Catalogue.List(ctx)
	}
	begin := sort.Search(len(entries), func(i int) bool { return entries[i].Wire > after })
	page := entries[begin:min(begin+pageSize, len(entries))]
	tools := make([]any, len(page))
	for i, e := range page {
		tools[i] = d.describe(e)
	}
	result := map[string]any{"tools": tools}
	if begin+len(page) < len(entries) {
		result["nextCursor"] = base64.RawURLEncoding.EncodeToString([]byte(page[len(page)-1].Wire))
	}
	if modern {
		result["ttlMs"], result["cacheScope"] = 0, "private"
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.served = version
	d.show(page)
	return result, nil
}

// show remembers which definitions the agent has seen. The lock is held.
func (d *door) show(entries []*catalogue.Entry) {
	for _, e := range entries {
		d.shown[e.Wire] = e.Digest
	}
}

// describe makes the form of a tool that hosts see. The hints are the contract's, not the server's. An
// output schema is not promised: a result that was redacted or cut need not keep it.
func (d *door) describe(e *catalogue.Entry) map[string]any {
	mode := contract.HighRisk
	if d.o.Mode != nil {
		mode = d.o.Mode(e.Capability)
	}
	t := map[string]any{"name": e.Wire, "description": e.Description, "inputSchema": e.Input,
		"annotations": map[string]bool{"readOnlyHint": mode == contract.Read},
		"_meta":       map[string]any{"waldo/capability": e.Capability}}
	if e.Wire == catalogue.SearchTools {
		t["annotations"] = map[string]bool{"readOnlyHint": true}
	}
	if e.Title != "" {
		t["title"] = e.Title
	}
	return t
}

// listen tells a modern client of changes to the list until it cancels (MCP 2026-07-28 subscriptions).
func (d *door) listen(ctx context.Context, m jsonrpc.Message) (map[string]any, error) {
	wanted, ok := m.Param("notifications").Members()
	if !ok {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "subscriptions/listen needs notifications")
	}
	meta := map[string]any{jsonrpc.MetaSubscription: m.ID}
	agreed := map[string]bool{}
	if v, has := wanted["toolsListChanged"]; has && string(v.Raw()) == "true" {
		agreed["toolsListChanged"] = true
	}
	if err := d.conn.Tell(ctx, "notifications/subscriptions/acknowledged", map[string]any{"notifications": agreed, "_meta": meta}); err != nil {
		return nil, err
	}
	if len(agreed) > 0 {
		key := string(m.ID.Canonical())
		d.mu.Lock()
		d.listening[key] = m.ID
		d.mu.Unlock()
		<-ctx.Done()
		d.mu.Lock()
		delete(d.listening, key)
		d.mu.Unlock()
	}
	return map[string]any{"_meta": meta}, nil
}

// tellChanges tells the client, at most once a second, that the list it has seen is another now.
func (d *door) tellChanges() {
	const method = "notifications/tools/list_changed"
	for {
		select {
		case <-d.dirty:
		case <-d.conn.Done():
			return
		}
		d.mu.Lock()
		tell := d.served != 0 && d.served != d.o.Catalogue.Version()
		opened := d.opened
		var listening []wire.Value
		for _, id := range d.listening {
			listening = append(listening, id)
		}
		d.mu.Unlock()
		if tell && opened {
			d.conn.Notify(method, nil)
		}
		for _, id := range listening {
			if tell {
				d.conn.Notify(method, map[string]any{"_meta": map[string]any{jsonrpc.MetaSubscription: id}})
			}
		}
		select {
		case <-time.After(time.Second):
		case <-d.conn.Done():
			return
		}
	}
}
