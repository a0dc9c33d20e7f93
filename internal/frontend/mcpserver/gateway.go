// Package mcpserver is the MCP server that agents connect to, with a Session for each client. It checks arguments
// against the tool's schema, binds the call to a session and a principal, and sends it through the pipeline. It
// converts the result to MCP's form. It makes no policy decision. It serves stdio here; mcpserver/web serves HTTP.
//
// It speaks the legacy revisions, which open with initialize, and the modern one, where every
// request carries its revision; which one is meant, each request says.
package mcpserver

import (
	"cmp"
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/frontend/mcpserver/tasks"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// Pipeline is where calls go and what decides about them; waldo's is that of the configuration in force.
type Pipeline interface {
	Call(ctx context.Context, c call.Call) (call.Result, error)
	// Refuse records a call that is not let in, and returns its end.
	Refuse(ctx context.Context, c call.Call, why call.Reason) (call.Result, error)
	// Mode is the class of a tool and its danger: from its contract, or from its server's annotations if those claim
	// more risk.
	Mode(cap call.Capability, annotations strictjson.Value) (contract.Mode, int)
	// Scrub redacts a server's message beside its answer to a call: a question to a person, or a log message. A zero
	// result drops the message.
	Scrub(c call.Call, v strictjson.Value, question bool) strictjson.Value
	// SideEffect returns the known side effect of an ended call; false: it is not known.
	SideEffect(ctx context.Context, callID string) (facts.SideEffect, bool)
}

// Consent has the questions to humans that this session's host may put to its person.
type Consent interface {
	// Put returns the text of such a question; false: the host may not answer it.
	Put(ctx context.Context, n call.Session, approvalID string) (text string, ok bool)
	Said(ctx context.Context, n call.Session, approvalID string, yes bool) error
	// Await waits until an approval has an answer or its time is over.
	Await(ctx context.Context, approvalID string) error
}

// Options are what a server is made of. Catalogue and Pipeline are needed.
type Options struct {
	Version      string // of waldo
	Instructions string // how to use it, for the model; ours, never a server's
	Marks        bool   // put untrusted text between marks
	Catalogue    *catalog.Catalogue
	Pipeline     Pipeline
	Consent      Consent          // nil: no host may answer, and a call that waits for a human never does so as a task
	Log          *slog.Logger     // nil: nothing is logged
	Now          func() time.Time // nil: time.Now
	Lean         bool             // show three tools in place of all: search, call, run code
	Drain        time.Duration    // for answers once the input has ended; 0: 10 s
	Park         time.Duration    // time for a client's person to answer; 0: 10 min
	// HostWait is how long a human can keep a call waiting whose host waits for it. Hosts give up a call after 60 s. 0:
	// 40 s.
	HostWait time.Duration
	// StateKey is a persistent key. With it a restarted waldo can explain, not resume, a suspended call. Nil disables
	// that.
	StateKey     *[32]byte
	OnSessionEnd func(n call.Session) // called at the end of a session; nil: not called
	Tasks        tasks.Limits
	TaskAfter    time.Duration // how long a call takes before it becomes a task of a modern client; 0: 5 s
}

// channel is the name of this front end in calls.
const channel = "mcp"

// pageSize is how many tools one page of tools/list holds: enough that few hosts need a second.
const pageSize = 500

// Server holds the state that all sessions share.
type Server struct {
	o         Options
	suspended *suspendedCalls
	tasks     *tasks.Store
	shows     atomic.Pointer[lists]

	mu       sync.Mutex
	sessions map[*Session]struct{}
}

// New makes a server without sessions.
func New(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Drain == 0 {
		o.Drain = 10 * time.Second
	}
	if o.Lean {
		o.Instructions = leanInstructions
	}
	if o.Marks {
		o.Instructions = markInstructions + o.Instructions
	}
	if o.Park == 0 {
		o.Park = 10 * time.Minute
	}
	if o.HostWait == 0 {
		o.HostWait = 40 * time.Second
	}
	if o.TaskAfter == 0 {
		o.TaskAfter = 5 * time.Second
	}
	d := &Server{o: o, suspended: newSuspendedCalls(o.StateKey), sessions: map[*Session]struct{}{}}
	d.tasks = tasks.New(o.Tasks, d.taskChanged)
	if o.Catalogue != nil {
		d.Replace(o.Catalogue)
	}
	return d
}

// Who is on the other side of a session. Every call is bound to it.
type Who struct {
	Session   call.Session
	Principal call.Principal
}

// Link carries messages to the client beside an answer. *jsonrpc.Conn is one.
type Link interface {
	// Notify sends a notification, or drops it when the other side does not read.
	Notify(method string, params any) bool
	// Tell sends a notification. It waits while the other side does not read.
	Tell(ctx context.Context, method string, params any) error
	// Call asks the client, as *jsonrpc.Conn does. No modern client may be asked.
	Call(ctx context.Context, method string, params func(id int64) any,
		progress func(done, total float64)) (strictjson.Value, error)
}

// Session is the state of one client. It is independent of the transport.
type Session struct {
	d      *Server
	who    Who
	stream Link // for messages outside a request; only legacy clients read it
	stop   func()
	closed chan struct{}

	mu        sync.Mutex
	opened    bool                     // initialize was answered
	ready     bool                     // and the client has said that it is
	seen      catalog.Versions         // of the lists that the agent was shown last; 0: none
	declared  strictjson.Value         // capabilities that a legacy client declared
	agent     string                   // the name that a legacy client gives itself
	revision  string                   // that a legacy client was given; empty: the newest
	level     string                   // of the log messages that a legacy client wants; empty: none
	subs      map[string]int           // resources that it wants to hear of
	shown     map[string]string        // wire name to the digest of the definition it saw
	listening map[*listener]struct{}   // modern subscriptions to changes of the list
	waiting   map[string]string        // call to the approval it waits for
	asking    map[string][]chan<- bool // approvals that a legacy host is asked about, and who waits for its answer
	dirty     chan struct{}
}

// listener is one subscription to changes.
type listener struct {
	id                        strictjson.Value
	link                      Link
	tools, prompts, resources bool
	uris                      map[string]int
	tasks                     map[string]*tasks.Task
	seen                      catalog.Versions
}

// Session lets a client in. The caller has made sure who it is, and closes the session.
func (d *Server) Session(who Who, stream Link) *Session {
	s := &Session{
		d: d, who: who, stream: stream, closed: make(chan struct{}), shown: map[string]string{},
		listening: map[*listener]struct{}{}, waiting: map[string]string{},
		asking: map[string][]chan<- bool{}, subs: map[string]int{},
		dirty: make(chan struct{}, 1),
	}
	d.mu.Lock()
	d.sessions[s] = struct{}{}
	d.mu.Unlock()
	s.stop = sync.OnceFunc(func() {
		close(s.closed)
		d.mu.Lock()
		delete(d.sessions, s)
		d.mu.Unlock()
		d.suspended.cancelSession(s)
		d.tasks.Drop(s)
		if d.o.OnSessionEnd != nil {
			d.o.OnSessionEnd(who.Session)
		}
	})
	go s.tellChanges()
	return s
}

// wake notifies the client of changed lists.
func (s *Session) wake() {
	select {
	case s.dirty <- struct{}{}:
	default: // it will be told anyway
	}
}

// Close ends a session. The contexts of its requests cancel the work in progress.
func (s *Session) Close() { s.stop() }

// Who returns the owner of the session.
func (s *Session) Who() Who { return s.who }

func (s *Session) viewer() catalog.Viewer {
	return catalog.Viewer{Principal: s.who.Principal, Channel: channel}
}

// Serve answers one agent over lines until in ends or ctx is done.
func (d *Server) Serve(ctx context.Context, in io.Reader, out io.Writer, who Who) error {
	in, release := jsonrpc.Polled(in)
	defer release()
	var s *Session
	var conn *jsonrpc.Conn
	conn = jsonrpc.New(in, out, jsonrpc.Options{
		Request: func(ctx context.Context, m jsonrpc.Message) (any, error) { return s.Answer(ctx, m, conn) },
		Notify:  func(m jsonrpc.Message) { s.HandleNotification(m) },
		Inline:  func(method string) bool { return slices.Contains(quick, method) },
		OnInvalid: func(e *jsonrpc.Error) {
			d.o.Log.Warn("a frame was refused", "session", who.Session, "reason", e.Message)
		},
		AnswerInvalid: true, SkipLong: true, Drain: d.o.Drain,
	})
	s = d.Session(who, conn)
	defer d.Settle()
	defer s.Close()
	return conn.Serve(ctx)
}

// Settle waits until the calls of tasks that were cancelled are on record, for at most the time of Options.Drain.
func (d *Server) Settle() { d.tasks.Settle(d.o.Drain) }

// quick are the methods that are answered before the next message is read.
var quick = []string{"initialize", "ping", "server/discover"}

// HandleNotification takes a notification from the client. It does not block.
func (s *Session) HandleNotification(m jsonrpc.Message) {
	if m.Method == "notifications/initialized" {
		s.mu.Lock()
		s.ready = s.opened
		s.mu.Unlock()
	}
}

// Answer answers one request. The link carries what belongs to the request, while it is answered. An
// error is a *jsonrpc.Error, or one that the client is not told of.
func (s *Session) Answer(ctx context.Context, m jsonrpc.Message, link Link) (any, error) {
	modern, fault := Revision(m)
	if fault != nil {
		return nil, fault
	}
	result, err := s.dispatch(ctx, m, modern, link)
	if err != nil || !modern || result == nil { // nil: it was answered early
		return result, err
	}
	return s.d.complete(result), nil
}

// complete adds what every result of the modern kind has.
func (d *Server) complete(result map[string]any) map[string]any {
	if result["resultType"] == nil {
		result["resultType"] = "complete"
	}
	meta, _ := result["_meta"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		result["_meta"] = meta
	}
	meta[jsonrpc.MetaServer] = d.self()
	return result
}

func (s *Session) dispatch(ctx context.Context, m jsonrpc.Message, modern bool, link Link) (map[string]any, error) {
	switch {
	case m.Method == "tools/list":
		return s.list(ctx, m, modern)
	case m.Method == "tools/call" && !modern && !m.Param("task").IsZero() && s.takesTasks():
		return s.callAsTask(ctx, m)
	case taskMethod(m.Method):
		return s.aboutTasks(ctx, m, modern, link)
	case m.Method == "tools/call":
		return s.asked(ctx, m, modern, link, s.call)
	case m.Method == "logging/setLevel" && !modern:
		return s.setLevel(m)
	case m.Method == "ping" && !modern:
		return map[string]any{}, nil
	case m.Method == "initialize" && !modern:
		return s.initialize(m)
	case m.Method == "server/discover" && modern:
		return s.d.discover(), nil
	case m.Method == "subscriptions/listen" && modern:
		return s.listen(ctx, m, link)
	}
	if result, ok, err := s.offer(ctx, m, modern, link); ok {
		return result, err
	}
	return nil, jsonrpc.Errorf(jsonrpc.CodeNoMethod, "no such method: %.50q", m.Method)
}

// Revision reports whether a request is of the modern kind, and refuses one that claims to be and
// is not (MCP 2026-07-28 basic/versioning).
func Revision(m jsonrpc.Message) (modern bool, fault *jsonrpc.Error) {
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

func (d *Server) self() jsonrpc.Implementation {
	return jsonrpc.Implementation{Name: "waldo", Version: d.o.Version}
}

func (d *Server) offers() map[string]any {
	can := map[string]any{"tools": map[string]any{"listChanged": true}}
	prompts, resources := d.lists().Offered()
	if prompts {
		can["prompts"] = map[string]any{"listChanged": true}
	}
	if resources {
		can["resources"] = map[string]any{"listChanged": true, "subscribe": true}
	}
	if prompts || resources {
		can["completions"] = struct{}{}
	}
	can["logging"] = struct{}{}
	return can
}

// initialize opens a legacy session, once. A revision that is not spoken here gets the newest that is.
func (s *Session) initialize(m jsonrpc.Message) (map[string]any, error) {
	revision, ok := m.Param("protocolVersion").Text()
	_, hasCapabilities := m.Param("capabilities").Members()
	client := m.Param("clientInfo")
	_, hasClient := client.Members()
	if !ok || !hasCapabilities || !hasClient {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "initialize needs protocolVersion, capabilities and clientInfo")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalid, "the session is open already")
	}
	s.opened, s.declared, s.agent = true, m.Param("capabilities"), agentOf(client)
	if !slices.Contains(jsonrpc.LegacyRevisions, revision) {
		revision = jsonrpc.Legacy
	}
	s.revision = revision
	offers := s.d.offers()
	if revision == jsonrpc.Legacy {
		offers["tasks"] = map[string]any{
			"list": struct{}{}, "cancel": struct{}{}, "requests": map[string]any{"tools": map[string]any{"call": struct{}{}}},
		}
	}
	result := map[string]any{"protocolVersion": revision, "capabilities": offers, "serverInfo": s.d.self()}
	if s.d.o.Instructions != "" {
		result["instructions"] = s.d.o.Instructions
	}
	return result, nil
}

func (d *Server) discover() map[string]any {
	offers := d.offers()
	offers["extensions"] = map[string]any{tasks.Extension: struct{}{}}
	result := map[string]any{"supportedVersions": revisions(), "capabilities": offers, "ttlMs": 0, "cacheScope": "private"}
	if d.o.Instructions != "" {
		result["instructions"] = d.o.Instructions
	}
	return result
}

// list answers tools/list, a page at a time. A cursor is the name of the last tool of the page before.
func (s *Session) list(ctx context.Context, m jsonrpc.Message, modern bool) (map[string]any, error) {
	if s.d.o.Lean {
		return lean(modern, !modern && s.takesTasks()), nil
	}
	after := ""
	if c := m.Param("cursor"); !c.IsZero() {
		text, _ := c.Text()
		name, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || len(name) > 64 || !catalog.Named(string(name)) {
			return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "the cursor is not one of ours")
		}
		after = string(name)
	}
	version := s.d.lists().Versions().Tools
	entries := s.d.lists().List(ctx, s.viewer())
	if v := s.d.lists().Versions().Tools; v != version {
		version = v
		entries = s.d.lists().List(ctx, s.viewer())
	}
	begin := sort.Search(len(entries), func(i int) bool { return entries[i].Wire > after })
	page := entries[begin:min(begin+pageSize, len(entries))]
	tools, asTasks := make([]any, len(page)), !modern && s.takesTasks()
	for i, e := range page {
		shown := s.d.describe(e)
		if asTasks && e.Capability != catalog.SearchTools {
			shown["execution"] = map[string]string{"taskSupport": "optional"}
		}
		tools[i] = shown
	}
	result := map[string]any{"tools": tools}
	if begin+len(page) < len(entries) {
		result["nextCursor"] = base64.RawURLEncoding.EncodeToString([]byte(page[len(page)-1].Wire))
	}
	if modern {
		result["ttlMs"], result["cacheScope"] = 0, "private"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Tools = version
	s.show(page)
	return result, nil
}

// show remembers which definitions the agent has seen. The lock is held.
func (s *Session) show(entries []*catalog.Entry) {
	for _, e := range entries {
		s.shown[e.Wire] = e.Digest
	}
}

// describe returns the form of a tool that hosts see. It omits the output schema: a redacted or cut result can
// violate it.
func (d *Server) describe(e *catalog.Entry) map[string]any {
	mode, danger := d.o.Pipeline.Mode(e.Capability, e.Annotations)
	t := map[string]any{"name": e.Wire, "description": e.Description, "inputSchema": e.Input,
		"annotations": hints(e, mode == contract.Read),
		"_meta":       map[string]any{"waldo/capability": e.Capability, "waldo/danger": danger}}
	if e.Wire == catalog.SearchTools {
		t["_meta"] = map[string]any{"waldo/capability": e.Capability, "waldo/danger": 1}
		t["annotations"] = map[string]bool{"readOnlyHint": true} // waldo's own
	}
	if e.Title != "" {
		t["title"] = e.Title
	}
	return t
}

// hints are the annotations of a tool that hosts see. It is read-only if its contract and its server both say so;
// one of waldo's own has a contract alone. Other hints pass where they warn of more than silence does (MCP
// 2025-11-25 schema, ToolAnnotations): that a tool destroys, even if it only reads by contract.
func hints(e *catalog.Entry, read bool) map[string]bool {
	var said struct {
		ReadOnly    *bool `json:"readOnlyHint"`
		Destructive *bool `json:"destructiveHint"`
		Idempotent  *bool `json:"idempotentHint"`
		OpenWorld   *bool `json:"openWorldHint"`
	}
	silent := e.Annotations.IsZero()
	if !silent && (e.Annotations.Kind() != '{' || e.Annotations.Decode(&said) != nil) {
		return map[string]bool{"readOnlyHint": false}
	}
	is := func(hint *bool, want bool) bool { return hint != nil && *hint == want }
	out := map[string]bool{"readOnlyHint": read && (is(said.ReadOnly, true) || silent && e.Server == "")}
	if is(said.Destructive, true) {
		out["destructiveHint"] = true
	}
	if is(said.Idempotent, false) {
		out["idempotentHint"] = false
	}
	if is(said.OpenWorld, true) {
		out["openWorldHint"] = true
	}
	return out
}

// listen tells a modern client of changes until it cancels (MCP 2026-07-28 subscriptions).
func (s *Session) listen(ctx context.Context, m jsonrpc.Message, link Link) (map[string]any, error) {
	wanted, ok := m.Param("notifications").Members()
	if !ok {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "subscriptions/listen needs notifications")
	}
	if !wanted["taskIds"].IsZero() && !extended(m) {
		return nil, lacksTasks()
	}
	o := s.d.lists()
	prompts, resources := o.Offered()
	yes := func(name string) bool { return string(wanted[name].Raw()) == "true" }
	l := &listener{id: m.ID, link: link, tools: yes("toolsListChanged"), prompts: prompts && yes("promptsListChanged"),
		resources: resources && yes("resourcesListChanged"), uris: map[string]int{}}
	agreed := map[string]any{}
	for name, on := range map[string]bool{
		"toolsListChanged": l.tools, "promptsListChanged": l.prompts, "resourcesListChanged": l.resources,
	} {
		if on {
			agreed[name] = true
		}
	}
	uris, _ := wanted["resourceSubscriptions"].Elements()
	heard := []strictjson.Value{}
	for _, v := range uris {
		if uri, _ := v.Text(); resources && s.subscribe(ctx, v, false) == nil {
			l.uris[uri]++
			heard = append(heard, v)
			// the server is notified without waiting for its answer
			defer func() { _ = s.subscribe(context.WithoutCancel(ctx), v, true) }()
		}
	}
	if len(heard) > 0 {
		agreed["resourceSubscriptions"] = heard
	}
	if l.tasks = s.watched(wanted["taskIds"]); len(l.tasks) > 0 {
		agreed["taskIds"] = slices.Sorted(maps.Keys(l.tasks))
	}
	meta := map[string]any{jsonrpc.MetaSubscription: m.ID}
	if err := link.Tell(ctx, "notifications/subscriptions/acknowledged",
		map[string]any{"notifications": agreed, "_meta": meta}); err != nil {
		return nil, err
	}
	if len(agreed) > 0 {
		if l.tools { // lists that the client never requested are not watched
			o.List(ctx, s.viewer())
		}
		if l.prompts || l.resources {
			o.Prompts(ctx, s.viewer())
		}
		now := o.Versions()
		s.mu.Lock()
		l.seen = catalog.Versions{
			Tools: cmp.Or(s.seen.Tools, now.Tools), Prompts: cmp.Or(s.seen.Prompts, now.Prompts),
			Resources: cmp.Or(s.seen.Resources, now.Resources),
		}
		s.listening[l] = struct{}{}
		for _, t := range l.tasks { // it may have changed since
			l.tell(t)
		}
		s.mu.Unlock()
		s.wake() // a list may have become another since it was shown
		select {
		case <-ctx.Done():
		case <-s.closed:
		}
		s.mu.Lock()
		delete(s.listening, l)
		s.mu.Unlock()
	}
	return map[string]any{"_meta": meta}, nil
}

// tellChanges tells the client, at most once a second, that a list it has seen is another now.
func (s *Session) tellChanges() {
	for {
		select {
		case <-s.dirty:
		case <-s.closed:
			return
		}
		s.tellOnce(s.d.lists().Versions())
		select {
		case <-time.After(time.Second):
		case <-s.closed:
			return
		}
	}
}

func (s *Session) tellOnce(now catalog.Versions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready {
		for _, method := range changed(s.seen, now) {
			s.stream.Notify(method, nil)
		}
	}
	for l := range s.listening {
		seen := catalog.Versions{}
		if l.tools {
			seen.Tools = l.seen.Tools
		}
		if l.prompts {
			seen.Prompts = l.seen.Prompts
		}
		if l.resources {
			seen.Resources = l.seen.Resources
		}
		for _, method := range changed(seen, now) {
			l.link.Notify(method, map[string]any{"_meta": map[string]any{jsonrpc.MetaSubscription: l.id}})
		}
		l.seen = now
	}
}

// changed names the lists that differ from those seen; lists never seen are omitted.
func changed(seen, now catalog.Versions) (methods []string) {
	for _, x := range []struct {
		name      string
		was, isIt int
	}{
		{"tools", seen.Tools, now.Tools}, {"prompts", seen.Prompts, now.Prompts},
		{"resources", seen.Resources, now.Resources},
	} {
		if x.was != 0 && x.was != x.isIt {
			methods = append(methods, "notifications/"+x.name+"/list_changed")
		}
	}
	return methods
}

// maxAgent is how many bytes of an agent host's name and version are kept.
const maxAgent = 80

// agentOf returns the name and version that an agent host gives itself (MCP Implementation), in printable ASCII.
func agentOf(client strictjson.Value) string {
	name, _ := client.Member("name").Text()
	version, _ := client.Member("version").Text()
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '_'
		}
		return r
	}, strings.TrimSpace(name+" "+version))
	return text[:min(len(text), maxAgent)]
}

// calling returns the agent host of a request: modern ones name themselves in each, legacy ones once.
func (s *Session) calling(m jsonrpc.Message) string {
	if client := m.Param("_meta").Member(jsonrpc.MetaClient); !client.IsZero() {
		return agentOf(client)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agent
}
