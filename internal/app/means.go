package app

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"

	"waldo/internal/core/policy"
	"waldo/internal/core/redact"
	"waldo/internal/executor/sandboxegress"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/secret"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/template"
	"waldo/internal/storage/workspace"
)

// means are what runs take from an application.
type means struct {
	h    *App
	keep string // the folder that the operator named for the files of runs; empty: a session has a workspace
}

// Workspace opens the files of a session.
func (m means) Workspace(s call.Session) (*workspace.Workspace, error) {
	return m.h.workspace(s, m.keep)
}

// Egress makes the egress of one run.
func (m means) Egress(d policy.Decision, n contract.Network) (*sandboxegress.Egress, error) {
	return m.h.egresses().ForCall(d, n)
}

// Secret returns the current value of a secret.
func (m means) Secret(name secret.Ref) (secret.Value, error) { return m.h.secrets.Get(name) }

// Template finds the root filesystem that a contract names; a path starts at the folder of the configuration.
func (m means) Template(ctx context.Context, c contract.Contract) (sandbox.Template, template.Config, error) {
	name := c.Template
	if strings.HasPrefix(name, "/") || strings.HasPrefix(name, ".") {
		at, err := m.h.opened().Resolve(c.At, name)
		if err != nil {
			return sandbox.Template{}, template.Config{}, err
		}
		name = at
	}
	s, err := OpenTemplates(m.h.State, m.h.set.Progress)
	if err != nil {
		return sandbox.Template{}, template.Config{}, err
	}
	t, err := s.Named(ctx, name)
	return Root(t), t.Config, err
}

// Stream hides what the contract hides, and what does not show.
func (m means) Stream(c contract.Contract, w io.Writer) io.WriteCloser {
	return m.h.Redact.StreamOf(c, cleaned{w})
}

// Servers returns the servers that the code of a run may use.
func (m means) Servers(run call.Call) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m.h.Config.Servers)),
		func(s string) bool { return !m.h.Policy.Reaches(s, run.Principal, viewOf(run).Channel) })
}

// cleaned removes from text what does not show.
type cleaned struct{ io.Writer }

func (c cleaned) Write(b []byte) (int, error) {
	_, err := io.WriteString(c.Writer, redact.Clean(string(b)))
	return len(b), err
}
