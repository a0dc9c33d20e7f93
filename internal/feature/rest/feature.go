// Package rest lets programs make calls over plain HTTP: calls, runs of code, and named sandboxes with their commands.
// Each is a call through the pipeline, by the principal that the gateway lets in.
package rest

import (
	"context"
	_ "embed"
	"net/http"
	"sync"
	"time"

	"waldo/internal/app"
	"waldo/internal/budget"
	"waldo/internal/core/session"
	"waldo/internal/feature"
	"waldo/internal/model/call"
)

// Feature is the part of /api/v1 that makes calls. The console has the rest of it.
var Feature = feature.Feature{Name: "rest", Open: open}

// document describes these paths for /api/v1/openapi.json.
//
//go:embed openapi.json
var document []byte

// channel is where the calls of this front end come from.
const channel = "rest"

// Limits of requests.
const (
	maxBody = 4 << 20  // of one request
	maxHeld = 64 << 20 // of all requests that are being read and answered
	maxEach = 1000     // requests of one principal under way
	maxTime = 30 * time.Second
)

// server answers programs. Its answers are those of the configuration in force.
type server struct {
	h    *app.App
	held *budget.Gate

	mu       sync.Mutex
	shared   *session.Shared
	sessions map[call.Principal]call.Session
}

func open(h *app.App) (app.Running, error) {
	s := &server{h: h, shared: h.SharedSessions("rest-sessions"), sessions: map[call.Principal]call.Session{},
		held: budget.New(budget.Limits{Memory: maxHeld, Share: maxHeld / 4, Each: maxEach, Wait: time.Second})}
	var routes []app.Route
	for _, r := range []struct {
		method, path string
		answer       operation
		calls        bool
	}{
		{http.MethodPost, "/api/v1/calls", s.call, true},
		{http.MethodPost, "/api/v1/runs", s.run, true},
		{http.MethodGet, "/api/v1/tools", s.tools, false},
		{http.MethodPost, "/api/v1/sandboxes", s.create, false},
		{http.MethodPost, "/api/v1/sandboxes/{name}/exec", s.exec, true},
		{http.MethodDelete, "/api/v1/sandboxes/{name}", s.remove, false},
	} {
		routes = append(routes, app.Route{Method: r.method, Prefix: r.path, Exact: true,
			Handler: handler{s, r.answer, r.calls}})
	}
	return app.Running{Routes: routes, API: document, Serve: func(ctx context.Context) {
		<-ctx.Done()
		s.shared.Close()
	}}, nil
}

// session returns the one session of a principal, which all of its requests share.
func (s *server) session(who call.Principal) (call.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.sessions[who]; ok && !s.shared.Over(n) {
		return n, nil
	}
	n, err := s.shared.Enter(who)
	if err == nil {
		s.sessions[who] = n
	}
	return n, err
}
