// Package web serves MCP's streamable HTTP at /mcp, both eras of the protocol on one endpoint, and health endpoints.
// It binds a client to its own sessions and every request to its limits. The mcpserver package answers the requests.
package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"waldo/internal/frontend/mcpserver"
	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonrpc"
)

// Options are what the server over HTTP is made of. Server, Identify, Open and Hosts are needed.
type Options struct {
	Server   *mcpserver.Server
	Identify func(r *http.Request) (call.Principal, *Refusal)                 // who is asking
	Proof    func(who call.Principal, r *http.Request) (call.Proof, *Refusal) // its proof of possession; nil: none is looked at
	Open     func(p call.Principal) (call.Session, error)                     // the session of a principal, opened where it has none
	// whether another session has replaced a session; nil: never
	Over  func(n call.Session) bool
	Hosts []string // names that the Host header may carry, without a port
	// besides those of the hosts themselves: "https://console.example.com"
	Origins []string
	// Beside answers other paths, and what is below those that end with a slash. Only Host and Origin are checked.
	Beside map[string]http.Handler
	// Methods answers some methods of paths, and leaves the others to Rest. Only Host and Origin are checked. It may be nil.
	Methods *http.ServeMux
	// Rest answers every other path: the console. It calls known once the request has shown who it is from.
	Rest func(w http.ResponseWriter, r *http.Request, known func(call.Principal))
	// Routes answer the paths below their prefix, as in /hooks/. They identify callers themselves: Host and Origin are
	// not checked for them.
	Routes map[string]http.Handler
	Peer   func(c net.Conn) (uid int, err error) // nil: cannot be told
	Ready  func() error                          // nil: always ready
	Log    *slog.Logger                          // nil: nothing is logged
	Limits Limits
}

// Refusal is the answer to an unauthenticated request.
type Refusal struct {
	Status    int    // 401 or 403
	Challenge string // of WWW-Authenticate (RFC 9110 §11.6.1)
	Why       string // for the client: never what would help to guess
}

// Answer writes the refusal.
func (f *Refusal) Answer(w http.ResponseWriter) {
	if f.Challenge != "" {
		w.Header().Set("WWW-Authenticate", f.Challenge)
	}
	http.Error(w, f.Why, f.Status)
}

// Limits bound what clients can take. A bound of zero is replaced by that of DefaultLimits.
type Limits struct {
	Body    int64 // bytes of one message
	Held    int64 // bytes of all the messages that are being read and answered
	Headers int   // bytes of one request's headers
	// authenticated connections at once; one principal has half of them at most
	Conns int
	// unauthenticated connections at once; one address of another machine has a quarter of them at most
	Strangers int
	Sessions  int           // of all clients
	Each      int           // sessions of one principal
	Calls     int           // requests being answered for one principal
	InFlight  int           // the same in one legacy session
	Spare     time.Duration // how long a session is idle before it makes room for another
	Stranger  time.Duration // how long a connection may be idle that has not shown who it is
	Idle      time.Duration // without a request, after which a session is forgotten
	Read      time.Duration // to send the headers; and again for the body
	Write     time.Duration // to take one piece of an answer
	// interval of comments on a silent stream, and the time after which an answer becomes a stream
	KeepAlive time.Duration
	Prime     time.Duration // how long an answer may take before a client that can come back for it gets an event id
	Drain     time.Duration // for answers once the server closes
	Replay    int64         // bytes of stored events of one session, for a client that lost a connection
	ReplayAll int64         // the same of all sessions
	Resume    time.Duration // time to resume a lost stream; then its requests fail and its events are swept
}

// DefaultLimits are for one machine.
func DefaultLimits() Limits {
	return Limits{
		Body: 4 << 20, Held: 64 << 20, Headers: 32 << 10, Conns: 4096, Strangers: 256, Sessions: 4000, Each: 1000,
		Calls: 1000, InFlight: 64, Spare: time.Minute, Stranger: 5 * time.Second, Idle: time.Hour, Read: 10 * time.Second,
		Write: 30 * time.Second, KeepAlive: 15 * time.Second, Prime: time.Second, Drain: 10 * time.Second, Replay: 1 << 20,
		ReplayAll: 32 << 20, Resume: 5 * time.Minute,
	}
}

func (l *Limits) fill() {
	d := DefaultLimits()
	for at, otherwise := range map[*int64]int64{
		&l.Body: d.Body, &l.Held: d.Held, &l.Replay: d.Replay, &l.ReplayAll: d.ReplayAll,
	} {
		if *at == 0 {
			*at = otherwise
		}
	}
	for at, otherwise := range map[*int]int{
		&l.Headers: d.Headers, &l.Conns: d.Conns, &l.Strangers: d.Strangers, &l.Calls: d.Calls, &l.Sessions: d.Sessions,
		&l.Each: d.Each, &l.InFlight: d.InFlight,
	} {
		if *at == 0 {
			*at = otherwise
		}
	}
	for at, otherwise := range map[*time.Duration]time.Duration{
		&l.Spare: d.Spare, &l.Stranger: d.Stranger, &l.Idle: d.Idle, &l.Read: d.Read, &l.Write: d.Write,
		&l.KeepAlive: d.KeepAlive, &l.Prime: d.Prime, &l.Drain: d.Drain, &l.Resume: d.Resume,
	} {
		if *at == 0 {
			*at = otherwise
		}
	}
}

// Server is the server. Use New, then Serve.
type Server struct {
	o       Options
	http    *http.Server
	closing chan struct{} // closed when no more work is taken
	close   func()
	end     context.CancelFunc // ends what is still under way
	life    context.Context

	mu       sync.Mutex
	sessions map[string]*session         // legacy, by Mcp-Session-Id
	modern   map[call.Principal]*session // one for each principal: the modern era knows no sessions
	held     int64                       // bytes of messages under way
	heldBy   map[call.Principal]int64    // of each principal
	calls    map[call.Principal]int      // requests being answered

	conns   *conns
	work    atomic.Int64 // answers being made
	replay  atomic.Int64 // bytes that all trails hold
	workers *jsonrpc.WorkerPool
}

// maxSpare is how many goroutines wait for the next request of any client.
const maxSpare = 32

// New makes the server.
func New(o Options) *Server {
	o.Limits.fill()
	if o.Peer == nil {
		o.Peer = func(net.Conn) (int, error) { return 0, errors.New("this server does not look") }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		o: o, closing: make(chan struct{}), sessions: map[string]*session{}, modern: map[call.Principal]*session{},
		heldBy: map[call.Principal]int64{}, calls: map[call.Principal]int{},
	}
	s.conns = newConns(o.Limits)
	s.close = sync.OnceFunc(func() { close(s.closing) })
	s.life, s.end = context.WithCancel(context.Background())
	s.workers = jsonrpc.NewWorkerPool(maxSpare, s.life.Done())
	s.http = &http.Server{
		Handler: s, ReadHeaderTimeout: o.Limits.Read, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: o.Limits.Headers,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if x, ok := c.(*conn); ok {
				ctx, c = context.WithValue(ctx, connKey{}, x), x.Conn
			}
			return context.WithValue(ctx, peerKey{}, sync.OnceValues(func() (int, error) { return o.Peer(c) }))
		},
		ConnState: s.conns.state,
		ErrorLog:  slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	return s
}

type peerKey struct{}
type connKey struct{}

// connOf is the connection of a request; nil: a test's.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// Peer returns who is at the other end of a request's connection, as Options.Peer tells it, which is
// asked once for each connection.
func Peer(r *http.Request) (uid int, err error) {
	ask, ok := r.Context().Value(peerKey{}).(func() (int, error))
	if !ok {
		return 0, errors.New("the connection is not known")
	}
	return ask()
}

// Serve answers on l until ctx is done; then it takes nothing new, lets what is being answered
// finish within Limits.Drain, and ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer s.end()
	sweep := time.NewTicker(max(s.o.Limits.Idle/10, time.Second))
	defer sweep.Stop()
	ended := make(chan error, 1)
	go func() { ended <- s.http.Serve(counting{l, s.conns}) }()
	strangers := time.NewTicker(s.o.Limits.pause())
	defer strangers.Stop()
	for {
		select {
		case <-strangers.C:
			s.conns.sweep(time.Now())
		case <-sweep.C:
			s.sweep(time.Now())
		case err := <-ended:
			return err
		case <-ctx.Done():
			s.drain()
			if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		}
	}
}

func (s *Server) drain() {
	s.close()
	s.mu.Lock()
	for _, n := range s.modern {
		n.gateway.Close() // which ends the subscriptions
	}
	s.mu.Unlock()
	for end := time.Now().Add(s.o.Limits.Drain); s.work.Load() > 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	s.end()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.sessions {
		n.close()
	}
	s.o.Server.Settle()
}

func (s *Server) draining() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// ServeHTTP satisfies http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if c := connOf(r); c != nil {
		// Until it has shown who it is, it sends all of its request in time, and no body of it is waited for.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.o.Limits.Read))
		if r.ContentLength != 0 {
			h.Set("Connection", "close")
		}
		defer c.answered()
	}
	if r.URL.Path == "/healthz" || r.URL.Path == "/readyz" { // monitors use the status code
		s.health(w, r.URL.Path == "/readyz")
		return
	}
	if Full(w, r) {
		return
	}
	if repeated(w, r, single) {
		return
	}
	for prefix, route := range s.o.Routes {
		if strings.HasPrefix(r.URL.Path, prefix) {
			route.ServeHTTP(w, r)
			return
		}
	}
	if why := s.stranger(r); why != "" {
		http.Error(w, why, http.StatusForbidden)
		return
	}
	if s.share(w, r) {
		return
	}
	switch beside := s.beside(r); {
	case beside == nil && r.URL.Path != "/mcp" && s.o.Rest != nil:
		s.o.Rest(w, r, func(who call.Principal) { Known(w, r, who) })
	case r.URL.Path == "/mcp":
		s.mcp(w, r)
	case beside != nil:
		beside.ServeHTTP(w, r)
	default:
		http.Error(w, "there is nothing here: the gateway is at /mcp. "+noSSE, http.StatusNotFound)
	}
}

// beside returns the handler of a request beside /mcp; nil: there is none.
func (s *Server) beside(r *http.Request) http.Handler {
	path := r.URL.Path
	if s.o.Methods != nil {
		if _, pattern := s.o.Methods.Handler(r); pattern != "" {
			return s.o.Methods
		}
	}
	if h := s.o.Beside[path]; h != nil {
		return h
	}
	for prefix, h := range s.o.Beside {
		if strings.HasSuffix(prefix, "/") && strings.HasPrefix(path, prefix) {
			return h
		}
	}
	return nil
}

// Known lets the connection of a request stay open: its principal has shown who it is. It returns false if too many
// connections of known principals are open.
func Known(w http.ResponseWriter, r *http.Request, who call.Principal) bool {
	if !Knows(r, who) {
		return false
	}
	if connOf(r) != nil {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		w.Header().Del("Connection")
	}
	return true
}

// Knows is Known for a server that sets no deadlines on strangers.
func Knows(r *http.Request, who call.Principal) bool {
	c := connOf(r)
	return c == nil || c.know(who)
}

// noSSE is for clients of the transport before streamable HTTP, which begin with a GET.
const noSSE = "Clients of HTTP+SSE (2024-11-05) begin with a GET of /mcp"

// health says that the server runs and, where it is asked to, that it takes work.
func (s *Server) health(w http.ResponseWriter, ready bool) {
	var err error
	if ready && s.o.Ready != nil {
		err = s.o.Ready()
	}
	if err == nil && ready && s.draining() {
		err = errors.New("waldo ends")
	}
	if err != nil {
		http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// full answers a connection beyond the bound with an error and ends it.
func full(w http.ResponseWriter, why string) {
	w.Header().Set("Connection", "close")
	refuse(w, http.StatusServiceUnavailable, why)
}

// share lets a page of an origin that was named read the answers (Fetch standard, CORS), and answers
// the question that a browser asks before. No other page gets to read one.
func (s *Server) share(w http.ResponseWriter, r *http.Request) (answered bool) {
	origin := r.Header.Get("Origin")
	if !slices.Contains(s.o.Origins, origin) {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", headerSession+", WWW-Authenticate")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "POST, GET, DELETE")
	h.Set("Access-Control-Allow-Headers", strings.Join(slices.Concat([]string{"Accept", "Authorization", "Content-Type", "Origin"}, once), ", "))
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// stranger returns the reason to refuse a web page's request. An unknown name in Host indicates DNS rebinding; an
// unknown Origin is another site's script.
func (s *Server) stranger(r *http.Request) string {
	if !s.ours(r.Host) {
		return "this server does not go by the name in Host"
	}
	for _, origin := range r.Header.Values("Origin") {
		if !s.welcome(origin, r.Host) {
			return "no page of that Origin is let in"
		}
	}
	return ""
}

// ours reports whether the server goes by the name in a Host header. The port is left out: a
// tunnel changes it, and a page cannot gain by it.
func (s *Server) ours(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.Trim(name, "[]")
	for _, h := range s.o.Hosts {
		if strings.EqualFold(h, name) {
			return true
		}
	}
	return false
}

// welcome reports whether a page of that origin may ask: one of our own, or one that was named.
func (s *Server) welcome(origin, host string) bool {
	return slices.Contains(s.o.Origins, origin) || origin == "http://"+host || origin == "https://"+host
}

// mcp answers at the MCP endpoint.
func (s *Server) mcp(w http.ResponseWriter, r *http.Request) {
	if repeated(w, r, once) {
		return
	}
	if len(r.Header[HeaderDelegation]) > 0 {
		http.Error(w, HeaderDelegation+" is a header of REST: name the token in params._meta, as waldo/delegation",
			http.StatusBadRequest)
		return
	}
	who, refusal := s.o.Identify(r)
	if refusal != nil {
		refusal.Answer(w)
		return
	}
	if who == "" || s.draining() {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	}
	if !Known(w, r, who) {
		full(w, "too many connections are open (gateway.limits.connections); close some, or try again later")
		return
	}
	if r.Method == http.MethodPost {
		s.post(w, r, who)
		return
	}
	if opensSSE(r) {
		s.sse(w, r, who)
		return
	}
	id := r.Header.Get(headerSession)
	if r.Method != http.MethodGet && r.Method != http.MethodDelete || id == "" ||
		r.Header.Get(headerVersion) >= jsonrpc.Modern {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "send messages by POST; GET and DELETE are for the sessions of legacy clients",
			http.StatusMethodNotAllowed)
		return
	}
	n := s.find(id, who)
	switch {
	case n == nil:
		http.Error(w, "no such session", http.StatusNotFound)
	case r.Method == http.MethodDelete:
		s.forget(n)
		w.WriteHeader(http.StatusNoContent)
	default:
		s.stream(w, r, n)
	}
}
