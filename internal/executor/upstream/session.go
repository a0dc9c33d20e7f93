package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"waldo/internal/executor/upstream/bounds"
	"waldo/internal/executor/upstream/eras"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/executor/upstream/tasks"
	"waldo/internal/model/call"
	"waldo/internal/model/display"
	"waldo/internal/network/a2apeer"
	"waldo/internal/network/mcphttp"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// session is one running server and the connection to it.
type session struct {
	s        *server
	proc     *Process // nil: the server runs elsewhere
	made     string   // Process.Made, or that of a server elsewhere; empty: unknown
	conn     conn
	revision string // of MCP, as agreed
	name     string // as the server calls itself
	can      abilities
	stderr   bounds.Tail
	again    chan struct{} // the subscriptions are others now
	heard    chan struct{} // closed when what the process wrote to stderr has been read
	ended    chan struct{} // closed when the connection is over
	gone     chan struct{} // closed when the process is gone as well
	end      error         // of the process, if it ended of itself; known once it is gone
	once     sync.Once
	killed   atomic.Bool   // by us, before it ended
	served   atomic.Bool   // it has answered a call
	dual     atomic.Bool   // modern: it says that it takes legacy sessions too
	stray    atomic.Bool   // it has written lines that are not messages
	flooded  atomic.Bool   // it was stopped for a flood of unsolicited messages
	meter    bounds.Meter  // of that
	sharing  chan struct{} // holds a token while files are shared

	mu    sync.Mutex
	calls map[*running]int64 // under way, each with the id of its request
	level int                // requested level of log messages, from 1; 0: not requested
}

// start launches the server and agrees on a revision with it. A server that falls silent or ends
// over a question from a revision it does not know is started once more and asked the old way.
func (s *server) start(ctx context.Context) (*session, error) {
	command := lockfile.Command(s.cfg)
	legacy := s.m.o.Eras.Legacy(ctx, command)
	s.mu.Lock()
	legacy = legacy || s.legacy
	s.mu.Unlock()
	ses, err := s.launch(ctx)
	if err != nil {
		return nil, err
	}
	if err = ses.agree(ctx, legacy); err != nil && !legacy && ctx.Err() == nil && !errors.Is(err, eras.ErrNewer) {
		ses.kill()
		if ses, err = s.launch(ctx); err != nil {
			return nil, err
		}
		err = ses.agree(ctx, true)
	}
	if err != nil {
		s.relapse()
	}
	if s.told == nil { // otherwise the legacy revision was our choice
		s.m.o.Eras.Note(ctx, command, err == nil && ses.revision != jsonrpc.Modern)
	}
	if err != nil {
		if !errors.Is(err, jsonrpc.ErrClosed) || ctx.Err() != nil { // otherwise it is ending of itself
			ses.kill()
		}
		<-ses.gone
		return nil, fmt.Errorf("server %s: %w%s", s.cfg.Name, err, ses.said())
	}
	s.mu.Lock()
	s.legacy = ses.revision != jsonrpc.Modern
	s.mu.Unlock()
	return ses, nil
}

func (s *server) launch(ctx context.Context) (*session, error) {
	ses := &session{s: s, again: make(chan struct{}, 1), sharing: make(chan struct{}, 1), calls: map[*running]int64{}, heard: make(chan struct{}), ended: make(chan struct{}), gone: make(chan struct{})}
	if err := ses.connect(ctx); err != nil {
		if strings.HasPrefix(err.Error(), "server "+s.cfg.Name+": ") { // the launcher has named it
			return nil, err
		}
		return nil, fmt.Errorf("server %s: starting it: %w", s.cfg.Name, err)
	}
	s.m.running.Add(1)
	began := time.Now()
	go func() {
		defer s.m.running.Done()
		err := ses.conn.Serve(s.m.ctx)
		s.mu.Lock()
		if s.session == ses && ses.proc != nil { // it ended without a stop
			s.crashed(true, time.Since(began))
		}
		s.mu.Unlock()
		close(ses.ended)
		ses.conn.Close()
		if own := ses.proc.reap(); !ses.killed.Load() {
			ses.end = own
		}
		ses.kill()
		if ses.proc != nil {
			select {
			case <-ses.heard:
			case <-time.After(lastWords): // another process holds it open
			}
		}
		close(ses.gone)
		s.m.o.Log.Debug("server ended", "server", s.cfg.Name, "error", err)
	}()
	return ses, nil
}

// connect starts the server's program, or reaches for its address, and makes the connection.
func (ses *session) connect(ctx context.Context) error {
	s := ses.s
	if s.cfg.URL != "" {
		if s.m.o.Remote == nil {
			return errors.New("this waldo reaches no addresses")
		}
		o, err := s.m.o.Remote(ctx, s.cfg)
		if err != nil {
			return err
		}
		o.URL, o.Handlers, ses.made = s.cfg.URL, ses.handlers(), o.Made
		if s.cfg.Peer {
			ses.conn, err = a2apeer.New(a2apeer.Options{Options: o, Key: s.cfg.CardKey, Name: s.cfg.Name,
				Questions: s.m.o.Questions, Seal: s.m.o.Seal})
			return err
		}
		ses.conn, err = mcphttp.New(o)
		return err
	}
	proc, err := s.m.launch(ctx, s)
	if err != nil {
		return err
	}
	ses.proc, ses.made, ses.conn = &proc, proc.Made, line{jsonrpc.New(proc.Stdout, proc.Stdin, ses.handlers())}
	go func() {
		defer close(ses.heard)
		if proc.Stderr == nil {
			return
		}
		_, _ = io.Copy(&ses.stderr, proc.Stderr)
		if c, ok := proc.Stderr.(io.Closer); ok {
			_ = c.Close()
		}
	}()
	return nil
}

// handlers are what takes the requests and notifications of the server, on any connection.
func (ses *session) handlers() jsonrpc.Options {
	stray := func(*jsonrpc.Error) { ses.stray.Store(true) }
	return jsonrpc.Options{Request: ses.question, Notify: ses.notified, OnInvalid: stray, OnUnexpected: ses.unasked,
		Inline: func(method string) bool { return method == "ping" }, MaxInFlight: 2 * maxAsks}
}

func (ses *session) alive() bool {
	select {
	case <-ses.ended:
		return false
	case <-ses.conn.Done():
		return false
	default:
		return true
	}
}

func (ses *session) kill() {
	ses.once.Do(func() {
		ses.killed.Store(true)
		ses.conn.Close()
		ses.proc.end()
	})
}

// stop asks the server to end by closing its input (MCP basic/lifecycle), and ends it when it does not.
func (ses *session) stop() {
	if ses.proc != nil {
		_ = ses.proc.Stdin.Close()
		select {
		case <-ses.ended:
		case <-time.After(time.Second):
		}
	}
	ses.kill()
	<-ses.gone
}

// agree finds the newest revision that both sides speak (MCP basic/versioning).
func (ses *session) agree(ctx context.Context, legacy bool) error {
	if !legacy {
		done, err := ses.discover(ctx)
		if done || errors.Is(err, jsonrpc.ErrClosed) || errors.Is(err, jsonrpc.ErrNotSent) || errors.Is(err, eras.ErrNewer) {
			return err
		}
		// An error or silence: it speaks another revision. A slow server answers this one in its turn.
		short, cancel := context.WithTimeout(ctx, 5*ses.s.m.o.Probe)
		defer cancel()
		ctx = short
	}
	err := ses.initialize(ctx)
	if fault := (*jsonrpc.Error)(nil); errors.As(err, &fault) { // possibly a slow server with the newest revision only
		if done, _ := ses.discover(ctx); done {
			return nil
		}
	}
	return err
}

// discover asks in the newest revision. It reports whether that settled the matter.
func (ses *session) discover(ctx context.Context) (bool, error) {
	patience := ses.s.m.o.Probe
	if ses.proc == nil {
		patience *= 5 // it is far away, and may want a token first
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ses.speak(jsonrpc.Modern)
	v, err := ses.ask(ctx, "server/discover", nil)
	if slices.Contains(eras.Offered(err), jsonrpc.Modern) { // it refuses what it says that it speaks
		v, err = ses.ask(ctx, "server/discover", nil)
	}
	ses.speak("")
	if err != nil {
		return false, eras.Newer(err)
	}
	var r struct {
		Supported []string `json:"supportedVersions"`
		Meta      map[string]struct {
			Name string `json:"name"`
		} `json:"_meta"`
	}
	if v.Decode(&r) != nil || !slices.Contains(r.Supported, jsonrpc.Modern) {
		return false, nil
	}
	ses.speak(jsonrpc.Modern)
	ses.name, ses.can = r.Meta[jsonrpc.MetaServer].Name, abilitiesOf(v)
	ses.dual.Store(slices.ContainsFunc(r.Supported, eras.IsLegacy) && !ses.s.single)
	return true, nil
}

func (ses *session) initialize(ctx context.Context) error {
	told := ses.s.told
	if told == nil {
		told = ses.s.declared(nil, false)
	}
	v, err := ses.conn.Call(ctx, "initialize", func(int64) any {
		return map[string]any{"protocolVersion": jsonrpc.Legacy, "capabilities": told, "clientInfo": ses.client()}
	}, nil)
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	var r struct {
		Revision string `json:"protocolVersion"`
		Info     struct {
			Name string `json:"name"`
		} `json:"serverInfo"`
	}
	if err := v.Decode(&r); err != nil {
		return fmt.Errorf("initialize: %w", &jsonrpc.MalformedResponse{Why: "it says no revision"})
	}
	if !slices.Contains(jsonrpc.LegacyRevisions, r.Revision) {
		return fmt.Errorf("initialize: the server speaks revision %.40q of MCP, which waldo does not", r.Revision)
	}
	ses.speak(r.Revision)
	ses.name, ses.can = r.Info.Name, abilitiesOf(v)
	ses.conn.Notify("notifications/initialized", nil)
	return nil
}

// speak sets the revision of all later requests.
func (ses *session) speak(revision string) {
	ses.revision = revision
	ses.conn.Speak(revision)
}

func (ses *session) client() jsonrpc.Implementation {
	return jsonrpc.Implementation{Name: "waldo", Version: ses.s.m.o.Version}
}

// ask sends a request in the revision that was agreed on. Raw values in params are sent as they are.
func (ses *session) ask(ctx context.Context, method string, params map[string]any) (strictjson.Value, error) {
	return ses.conn.Call(ctx, method, func(id int64) any { return ses.params(id, params, false, nil) }, nil)
}

// params completes the parameters of a request: the protocol's members of _meta, without the client's own, except for
// the trace position of the call.
func (ses *session) params(id int64, params map[string]any, progress bool, r *running) map[string]any {
	meta := map[string]any{}
	if progress {
		meta["progressToken"] = id
	}
	if ses.revision == jsonrpc.Modern {
		meta[jsonrpc.MetaRevision] = jsonrpc.Modern
		meta[jsonrpc.MetaClient] = ses.client()
		meta[jsonrpc.MetaCapabilities] = struct{}{}
	}
	if r != nil {
		if left := r.left(); left > 0 { // a request after the deadline cancels the call
			meta[call.MetaTimeout] = max(1, left.Milliseconds())
		}
		if ses.revision == jsonrpc.Modern || ses.s.cfg.Peer {
			declared := ses.s.declared(r.host, true)
			if ses.can.tasks {
				declared = tasks.Declare(declared)
			}
			meta[jsonrpc.MetaCapabilities] = declared
			if r.host != nil && r.host.Abilities().Log != "" {
				meta[jsonrpc.MetaLogLevel] = r.host.Abilities().Log
			}
		}
		if t := r.d.Call.Trace; t.Parent != "" {
			meta["traceparent"] = t.Parent
			if t.State != "" {
				meta["tracestate"] = t.State
			}
		}
	}
	all := map[string]any{}
	for k, v := range params {
		all[k] = v
	}
	if len(meta) > 0 {
		all["_meta"] = meta
	}
	return all
}

// left is how long a call can still take: until its contract's time is over, or its caller's.
func (r *running) left() time.Duration {
	left := r.clock.Left()
	if end, ok := r.over.Deadline(); ok {
		left = min(left, time.Until(end))
	}
	return left
}

// ending adds to the error of a call how the server has ended meanwhile, for the operator.
func (ses *session) ending(ctx context.Context, err error) error {
	if ses.proc == nil || !errors.Is(err, jsonrpc.ErrClosed) {
		return err
	}
	select {
	case <-ses.gone:
		return fmt.Errorf("%w%s", err, ses.said())
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	return err
}

// said describes how the server ended and the end of its stderr, without secrets, for the operator.
func (ses *session) said() string {
	if ses.s.m.o.Cleaner == nil {
		return ""
	}
	say := ""
	if ses.end != nil {
		say = "; " + ses.s.m.o.Cleaner.Clean(ses.end.Error())
	}
	if text := strings.TrimSpace(ses.s.m.o.Cleaner.Clean(ses.stderr.Text(ses.s.m.o.Cleaner.Window))); text != "" {
		say += display.Wrote(ending(text, 600))
	}
	return say
}

// ending is the last lines of a text, at most n bytes of them, and before them the last line left out that names an
// error: programs in JavaScript write the message first and many places after it.
func ending(text string, n int) string {
	if len(text) <= n {
		return text
	}
	before, last := text[:len(text)-n], strings.ToValidUTF8(text[len(text)-n:], "")
	if part, rest, cut := strings.Cut(last, "\n"); cut {
		before, last = before+part, rest
	}
	lines := strings.Split(before, "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.Contains(lines[i], "Error") || strings.Contains(lines[i], "error:") {
			return strings.ToValidUTF8(lines[i][:min(len(lines[i]), n)], "") + " … " + last
		}
	}
	return "… " + last
}
