// Package site is the web console and the REST API over one state directory. It draws pages and checks who asks;
// Backend does the rest. A page has one handler file (page_NAME.go) and one template (templates/NAME.html).
package site

import (
	"crypto/rand"
	"embed"
	"encoding/base64"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"waldo/internal/model/call"
)

//go:embed assets templates openapi.json
var files embed.FS

// Options are what a server needs.
type Options struct {
	Backend Backend
	Hosts   []string // the names that the console goes by, without port
	Origins []string // the origin of a console behind a proxy: https://waldo.example.com; empty: http:// and the Host
	Version string
	// Identify returns who a bearer token belongs to, and the role. RoleNone refuses it. nil: no tokens.
	Identify func(r *http.Request) (call.Principal, Role)
	// Peer tells which user of this machine made a request's connection; empty: another machine. Browsers send a
	// cookie to every port of a host name, so other users of the machine may learn it. nil: cookies work for all.
	Peer func(r *http.Request) string
	OIDC func() Issuer    // in force, or nil; nil: none
	Now  func() time.Time // nil: time.Now
	API  [][]byte         // OpenAPI documents of other paths below /api/v1, for openapi.json
}

// Server is the console. It satisfies http.Handler.
type Server struct {
	o     Options
	mux   *http.ServeMux
	pages *pages

	mu       sync.Mutex
	sessions map[string]*session
	failed   map[string]failures // by peer
	key      []byte              // of logins at an issuer
	spent    map[string]time.Time
	streams  int // open event streams
}

// New returns a console over a backend.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{o: o, mux: http.NewServeMux(), sessions: map[string]*session{}, pages: parsePages(), failed: map[string]failures{},
		key: []byte(secret()), spent: map[string]time.Time{}}
	for _, r := range s.routes() {
		s.mux.Handle(r.Method+" "+r.Path, s.guard(r))
	}
	s.mux.Handle("GET /assets/", http.HandlerFunc(s.asset))
	s.mux.Handle("/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, &Problem{Status: http.StatusNotFound, Code: "not_found", Detail: "no such page"})
	}))
	return s
}

// ServeHTTP satisfies http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.Serve(w, r, nil) }

// policy is the content security policy of every answer: nothing from elsewhere, no inline script, no frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// Serve answers one request. It calls known once the request has shown who it is from; nil disables that.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, known func(call.Principal)) {
	h := w.Header()
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff",
		"Referrer-Policy":            "same-origin",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		"Cache-Control": "no-store",
		"Permissions-Policy": "publickey-credentials-get=(self), publickey-credentials-create=(self), camera=(), " +
			"microphone=(), geolocation=()",
	} {
		h.Set(name, value)
	}
	if !s.ours(r.Host) {
		s.fail(w, r, &Problem{
			Status: http.StatusForbidden, Code: "host", Detail: "the console does not go by the name in Host",
		})
		return
	}
	if path.Clean(r.URL.Path) != r.URL.Path { // the router would redirect it
		s.fail(w, r, &Problem{Status: http.StatusNotFound, Code: "not_found", Detail: "no such page"})
		return
	}
	if to := named(r); to != "" {
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	s.mux.ServeHTTP(w, r.WithContext(withKnown(r.Context(), known)))
}

// maxBody is how many bytes a request may send.
const maxBody = 1 << 20

// named returns where a page asked for by a loopback address is: browsers make passkeys for localhost, and for no
// address.
func named(r *http.Request) string {
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil || r.Method != http.MethodGet || strings.HasPrefix(r.URL.Path, "/api/") {
		return ""
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return ""
	}
	return "http://localhost:" + port + r.URL.RequestURI()
}

// ours reports whether the console goes by the name in a Host header.
func (s *Server) ours(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return slices.ContainsFunc(s.o.Hosts, func(known string) bool {
		return strings.EqualFold(known, strings.Trim(host, "[]"))
	})
}

// origin returns the origin of the console as the browser of a request sees it.
func (s *Server) origin(r *http.Request) string {
	for _, o := range s.o.Origins {
		if _, host, _ := strings.Cut(o, "://"); strings.EqualFold(host, r.Host) {
			return o
		}
	}
	return "http://" + r.Host
}

// secret returns 32 random bytes as text.
func secret() string {
	var b [32]byte
	_, _ = rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// asset sends one file of assets.
func (s *Server) asset(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	b, err := files.ReadFile(name)
	if err != nil {
		s.fail(w, r, &Problem{Status: http.StatusNotFound, Code: "not_found", Detail: "no such file"})
		return
	}
	w.Header().Set("Content-Type", map[string]string{".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
		".js": "text/javascript; charset=utf-8"}[path.Ext(name)])
	_, _ = w.Write(b)
}
