package app

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"time"

	"waldo/internal/core/session"
	"waldo/internal/frontend/mcpserver"
	"waldo/internal/frontend/mcpserver/tasks"
	"waldo/internal/model/call"
)

// instructions tell the model how to use the gateway.
const instructions = "Tools run under contracts. A denied call says why and is not worth repeating unchanged; " +
	"a call that waits for a human names an approval id: make the same call again later. For many calls or large data " +
	"write one run_python script: servers.NAME.TOOL(...) calls the tools from inside, workspace.write keeps files, " +
	"and only what it prints comes back."

// MaxSessions is how many Pythons may stay between the calls of one waldo serve.
const MaxSessions = 8

// gateway returns the options of a server for hosts, which can resume suspended calls.
func (h *App) gateway(ctx context.Context, lean bool) (o mcpserver.Options, err error) {
	o = h.options()
	o.Lean, o.Marks = lean || h.Config.Gateway.Lean, h.Config.Gateway.Marks
	o.StateKey, err = h.keptKey(ctx)
	return o, err
}

// ServeStdio answers one host over its input and output. Reloads are taken.
func (h *App) ServeStdio(ctx context.Context, lean bool, in io.Reader, out io.Writer) error {
	h.TakesReloads(func(*App) error { return nil })
	o, err := h.gateway(ctx, lean)
	if err != nil {
		return err
	}
	n, err := h.OpenSession()
	if err != nil {
		return err
	}
	defer h.Sessions.Close(n.ID)
	defer h.Tidy(n)
	h.lives.inForce().expect(n)
	srv := mcpserver.New(o)
	h.lives.server.Store(srv)
	at, end := context.WithCancel(ctx)
	wait := h.serveFeatures(at, false)
	defer func() { end(); wait() }()
	err = srv.Serve(ctx, in, out, mcpserver.Who{Session: n.ID, Principal: n.Principal})
	if ctx.Err() != nil {
		return nil // told to end, and it has
	}
	return err
}

// ServeIn answers a host over a connection, in a session that is open already.
func (h *App) ServeIn(ctx context.Context, n session.Info, conn io.ReadWriter) error {
	o, err := h.gateway(ctx, false)
	if err != nil {
		return err
	}
	o.OnSessionEnd = func(call.Session) {} // it ends with its owner
	return mcpserver.New(o).Serve(ctx, conn, conn, mcpserver.Who{Session: n.ID, Principal: n.Principal})
}

// ServeHTTP answers hosts over HTTP until ctx is done, at an address or at the sockets that were passed. It calls ready
// with the address. Reloads are taken.
func (h *App) ServeHTTP(ctx context.Context, listen string, passed []net.Listener, lean bool, ready func(net.Addr)) error {
	at := sockets{listen, passed}
	h.TakesReloads(func(next *App) error { // also who may come in from beyond this machine
		return errors.Join(at.check(next.Config.Gateway), next.Require())
	})
	if err := h.Require(); err != nil {
		return err
	}
	o, err := h.gateway(ctx, lean)
	if err != nil {
		return err
	}
	return h.listenHTTP(ctx, at, o, ready)
}

// options returns the options of a server that passes each call to the current application.
func (h *App) options() mcpserver.Options {
	l := h.Config.Gateway.Limits
	return mcpserver.Options{
		Version: h.set.Version, Instructions: instructions, Catalogue: h.Catalogue, Pipeline: h.lives,
		Consent: h.Approvals, Log: h.set.Log, OnSessionEnd: h.Forget,
		Tasks: tasks.Limits{All: l.Tasks, Each: l.TasksEach, Life: time.Duration(l.TaskSeconds) * time.Second},
	}
}

// Forget ends what servers have for a session that is over.
func (h *App) Forget(n call.Session) {
	for _, open := range h.lives.All() {
		open.Upstreams.Forget(n)
	}
}

// seal returns a digest of a text under the key of this state directory. Without the key it is random, and so holds for
// nothing.
func (h *App) seal(text string) string {
	key, err := h.keptKey(context.Background())
	if err != nil {
		return rand.Text()
	}
	mac := hmac.New(sha256.New, key[:])
	_, _ = mac.Write([]byte("task of a peer\n" + text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
}

// keptKey returns the key of this state directory that seals suspended calls and tasks of peers, and creates it on
// first use. It protects no secret, so it is stored with ordinary state.
func (h *App) keptKey(ctx context.Context) (*[32]byte, error) {
	var key [32]byte
	return &key, h.Store.Modify(ctx, "gateway", "kept-key", func(old string, ok bool) (string, bool, error) {
		if b, err := hex.DecodeString(old); ok && err == nil && len(b) == len(key) {
			copy(key[:], b)
			return old, true, nil
		}
		_, _ = rand.Read(key[:])
		return hex.EncodeToString(key[:]), true, nil
	})
}
