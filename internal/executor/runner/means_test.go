package runner

import (
	"context"
	"errors"
	"io"
	"net"

	"waldo/internal/core/policy"
	"waldo/internal/executor/sandboxegress"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/secret"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/template"
	"waldo/internal/storage/workspace"
)

// means is a double of Means. Without its function nothing is there to take.
type means struct {
	workspace func(s call.Session) (*workspace.Workspace, error)
	egress    func(d policy.Decision, n contract.Network) (*sandboxegress.Egress, error)
	secret    func(name secret.Ref) (secret.Value, error)
	template  func(ctx context.Context, c contract.Contract) (sandbox.Template, template.Config, error)
	servers   []string
}

var errNone = errors.New("this test has none")

func (m *means) Workspace(s call.Session) (*workspace.Workspace, error) {
	if m.workspace == nil {
		return nil, errNone
	}
	return m.workspace(s)
}

func (m *means) Egress(d policy.Decision, n contract.Network) (*sandboxegress.Egress, error) {
	if m.egress == nil {
		return nil, errNone
	}
	return m.egress(d, n)
}

func (m *means) Secret(name secret.Ref) (secret.Value, error) {
	if m.secret == nil {
		return secret.Value{}, errNone
	}
	return m.secret(name)
}

func (m *means) Template(ctx context.Context, c contract.Contract) (sandbox.Template, template.Config, error) {
	if m.template == nil {
		return sandbox.Template{}, template.Config{}, errNone
	}
	return m.template(ctx, c)
}

func (m *means) Stream(_ contract.Contract, w io.Writer) io.WriteCloser { return untold{w} }

func (m *means) Servers(call.Call) []string { return m.servers }

// untold is a writer that hides nothing.
type untold struct{ io.Writer }

func (untold) Close() error { return nil }

// bridged is a double of Bridge.
type bridged func(context.Context, call.Call, net.Conn, *call.Suspension) func() facts.SideEffect

func (b bridged) Open(ctx context.Context, run call.Call, c net.Conn, p *call.Suspension) func() facts.SideEffect {
	return b(ctx, run, c, p)
}
