package call

import (
	"context"
	"fmt"

	"waldo/internal/protocol/strictjson"
)

// Question is a server's request to the agent's host while it carries out a call: elicitation/create,
// sampling/createMessage or roots/list of MCP, with its parameters.
type Question struct {
	Method string
	Params strictjson.Value
}

// Abilities are the requests that the agent's host declared it answers, each as declared; the zero Value if absent.
type Abilities struct {
	Elicitation, Sampling, Roots strictjson.Value
	Log                          string // the least level of log messages that it wants; empty: none
	Legacy                       bool   // it speaks a revision up to 2025-11-25
}

// Form reports whether the host shows a form to a person. A bare elicitation means forms alone.
func (a Abilities) Form() bool {
	m, ok := a.Elicitation.Members()
	_, form := m["form"]
	_, url := m["url"]
	return ok && (form || !url)
}

// URL reports whether the host shows an address to a person.
func (a Abilities) URL() bool {
	m, _ := a.Elicitation.Members()
	_, ok := m["url"].Members()
	return ok
}

// Host is the agent's host, as far as a worker may turn to it while a call is under way.
type Host interface {
	// Abilities returns what the host answers.
	Abilities() Abilities
	// Ask puts the questions of a server to the host, all at once, and waits for the answers, which
	// come under the names of the questions. A *Fault is the host's own no.
	Ask(ctx context.Context, server string, asked map[string]Question) (map[string]strictjson.Value, error)
	// Log forwards a server's log message. It does not block.
	Log(server, level string, params strictjson.Value)
}

type hostKey struct{}

// WithHost returns a context whose call may turn to the agent's host.
func WithHost(ctx context.Context, h Host) context.Context {
	return context.WithValue(ctx, hostKey{}, h)
}

// HostOf returns the host of WithHost, or nil.
func HostOf(ctx context.Context) Host {
	h, _ := ctx.Value(hostKey{}).(Host)
	return h
}

// Fault is an error answer of JSON-RPC, by a server or by the host.
type Fault struct {
	Code    int
	Message string
	Data    strictjson.Value
}

// Error returns the code and the message.
func (f *Fault) Error() string { return fmt.Sprintf("error %d: %s", f.Code, f.Message) }
