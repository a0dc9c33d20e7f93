package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/core/audit"
	"waldo/internal/frontend/mcpserver"
	"waldo/internal/frontend/mcpserver/tasks"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/protocol/strictjson"
)

// instructions tell the model how to use the gateway.
const instructions = "Tools run under contracts. A denied call says why and is not worth repeating unchanged; a call that waits for a human " +
	"names an approval id: make the same call again later. For many calls or large data write one run_python script: servers.NAME.TOOL(...) " +
	"calls the tools from inside, workspace.write keeps files, and only what it prints comes back."

// maxSessions is how many Pythons may stay between the calls of one waldo serve.
const maxSessions = 8

func newServe(g *global) *cobra.Command {
	var stdio bool
	var listen string
	var lean bool
	c := &cobra.Command{
		Use: "serve [--stdio | --listen ADDRESS]", Short: "The gateway: an MCP server for an agent host", Args: cobra.NoArgs,
		Long: "Offers waldo's own tools and those of the configured servers, each call decided by its contract: over standard input and\n" +
			"output, or over HTTP at /mcp. With neither flag it is standard input and output where they are pipes, as an agent's host\n" +
			"makes them, and otherwise HTTP at gateway.listen or " + defaultListen + ".\n\n" +
			"Over HTTP, waldo admits its own user from this machine, and with gateway.auth a token (waldo token)\n" +
			"or a user of an OpenID issuer.",
		Example: "  waldo serve --stdio\n  claude mcp add waldo -- waldo serve --stdio\n  waldo serve --listen 127.0.0.1:7676\n  claude mcp add --transport http waldo http://127.0.0.1:7676/mcp",
		RunE: func(c *cobra.Command, _ []string) error {
			g.hosted = listen == "" && (stdio || piped(c.InOrStdin()))
			if stdio && listen != "" {
				return usage("one waldo serve for each", "--stdio and --listen exclude each other")
			}
			hup := make(chan os.Signal, 1) // a terminal that is closed ends no gateway: its host closes the pipe
			signal.Notify(hup, syscall.SIGHUP)
			defer signal.Stop(hup)
			h, err := openApplication(c.Context(), g, settings{warm: warmBoxes, sessions: maxSessions, hup: hup})
			if err != nil {
				return err
			}
			defer h.Close()
			if err := h.requireSecrets(); err != nil {
				return err
			}
			h.keepClean(c.Context())
			serving()
			o := h.options()
			http := listen != "" || !stdio && !piped(c.InOrStdin())
			h.takesReloads(g, func(next *application) error {
				if !http {
					return nil
				}
				_, err := listenOn(listen, next.cfg.Gateway) // also who may come in from beyond this machine
				return err
			})
			o.PromptText, o.RecordElicitation = h.approvals.Put, h.approvals.Said
			if o.StateKey, err = h.keptKey(c.Context()); err != nil {
				return err
			}
			o.SideEffectOf = func(ctx context.Context, callID string) (facts.SideEffect, bool) {
				return audit.Fate(ctx, audit.Dir(h.state), callID)
			}
			o.Lean = lean || h.cfg.Gateway.Lean
			if http {
				return h.serveHTTP(c.Context(), listen, o, c.ErrOrStderr())
			}
			n, err := h.open()
			if err != nil {
				return err
			}
			defer h.sessions.Close(n.ID)
			defer h.tidy(n)
			h.lives.inForce().expect(n)
			srv := mcpserver.New(o)
			h.lives.server.Store(srv)
			err = srv.Serve(c.Context(), c.InOrStdin(), c.OutOrStdout(), mcpserver.Who{Session: n.ID, Principal: n.Principal})
			if c.Context().Err() != nil {
				return nil // told to end, and it has
			}
			return err
		},
	}
	c.Flags().BoolVar(&stdio, "stdio", false, "serve standard input and output; the default when standard input is a pipe")
	c.Flags().BoolVar(&lean, "lean", false, "show three tools in place of all: search_tools, call_tool and run_code (gateway.lean)")
	c.Flags().StringVar(&listen, "listen", "", "`ADDRESS` to listen on over HTTP, as in "+defaultListen)
	return c
}

// options returns the options of a server that passes each call to the current application.
func (h *application) options() mcpserver.Options {
	l := h.cfg.Gateway.Limits
	return mcpserver.Options{
		Version: version, Instructions: instructions, Catalogue: h.catalogue,
		Call: func(ctx context.Context, c call.Call) (call.Result, error) {
			now, done := h.lives.Enter()
			defer done()
			return now.broker.Call(ctx, c)
		},
		Refuse: func(ctx context.Context, c call.Call, why call.Reason) (call.Result, error) {
			return h.lives.inForce().broker.Refuse(ctx, c, why)
		},
		Mode: func(cap call.Capability, said strictjson.Value) contract.Mode {
			return h.lives.inForce().mode(cap, said)
		},
		Log: slog.New(slog.NewTextHandler(logged{hiding{os.Stderr, h.known}}, &slog.HandlerOptions{Level: slog.LevelWarn})),
		ScrubNotification: func(c call.Call, v strictjson.Value, question bool) strictjson.Value {
			return h.lives.inForce().aside(c, v, question)
		},
		OnSessionEnd: h.forget, AwaitApproval: h.approvals.Await,
		Tasks: tasks.Limits{All: l.Tasks, Each: l.TasksEach, Life: time.Duration(l.TaskSeconds) * time.Second},
	}
}

// forget ends what servers have for a session that is over.
func (h *application) forget(n call.Session) {
	for _, open := range h.lives.All() {
		open.upstreams.Forget(n)
	}
}

// keptKey returns the key of this state directory that seals suspended calls, and creates it on first use. It
// protects no secret, so it is stored with ordinary state.
func (h *application) keptKey(ctx context.Context) (*[32]byte, error) {
	var key [32]byte
	return &key, h.store.Modify(ctx, "gateway", "kept-key", func(old string, ok bool) (string, bool, error) {
		if b, err := hex.DecodeString(old); ok && err == nil && len(b) == len(key) {
			copy(key[:], b)
			return old, true, nil
		}
		_, _ = rand.Read(key[:])
		return hex.EncodeToString(key[:]), true, nil
	})
}

// piped reports whether in is the kind of input that an agent host creates: a pipe, a socket or a file, but not a
// terminal or /dev/null.
func piped(in any) bool {
	f, ok := in.(*os.File)
	if !ok {
		return true
	}
	about, err := f.Stat()
	return err == nil && about.Mode()&os.ModeCharDevice == 0
}
