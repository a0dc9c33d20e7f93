package app

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"waldo/internal/app/fault"
	"waldo/internal/executor/runner"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/template"
	"waldo/internal/storage/sandboxes"
)

// OpenTemplates opens the template store of a state directory. progress shows how much of a download is done; nil:
// nowhere.
func OpenTemplates(state string, progress func(what string, bytes int64) io.WriteCloser) (*template.Store, error) {
	s, err := template.Open(filepath.Join(state, "templates"), template.Defaults())
	if err == nil {
		s.Progress = progress
	}
	return s, err
}

// Template resolves a template that a person named. "host" needs no lookup; a snapshot gives the template of its
// sandbox, with its files to start from.
func (h *App) Template(ctx context.Context, name string, fresh bool) (template.Template, error) {
	if id.Is(id.Snapshot, name) {
		p, err := h.NamedSandboxes().Picture(ctx, Owner(), name)
		if err != nil {
			return template.Template{}, err
		}
		h.Snapshot = p.ID
		return h.TemplateOf(p.Of)
	}
	if name == "host" || name == "" {
		return template.Host(), nil
	}
	s, err := OpenTemplates(h.State, h.set.Progress)
	if err != nil {
		return template.Template{}, err
	}
	t, err := h.findTemplate(ctx, s, name, fresh)
	return t, AboutTemplate(err)
}

// findTemplate finds a template that a flag names. A name that the configuration declares is not looked for at a
// registry, as in means.Template.
func (h *App) findTemplate(ctx context.Context, s *template.Store, name string, fresh bool) (template.Template, error) {
	if slices.ContainsFunc(h.Config.Contracts, func(c contract.Contract) bool { return c.Template == name }) {
		if t, err := s.Named(ctx, name); err != nil || !fresh {
			return t, err
		}
	}
	return s.Find(ctx, name, fresh)
}

// AboutTemplate gives errors about a named template the exit code for usage.
func AboutTemplate(err error) error {
	if err == nil {
		return nil
	}
	e := &fault.Error{Err: err, Tip: "host, a folder or archive by ./path or /path, the NAME of waldo template build, " +
		"or an image such as python:3.12-slim"}
	e.Usage = errors.As(err, &template.Unfit{})
	return e
}

// Root converts a template for the sandbox profile.
func Root(t template.Template) sandbox.Template {
	return sandbox.Template{Name: t.Name, Dir: t.Dir, Packages: t.Packages, UID: t.Config.UID, GID: t.Config.GID}
}

// Pinned resolves a template to its name and digest, so that later commands use the same one.
func (h *App) Pinned(ctx context.Context, name string, fresh bool) (string, string, error) {
	if name == "" || name == "host" {
		return "host", "", nil
	}
	s, err := OpenTemplates(h.State, h.set.Progress)
	if err != nil {
		return "", "", err
	}
	t, err := h.findTemplate(ctx, s, name, fresh)
	return t.Name, t.Digest, AboutTemplate(err)
}

// TemplateOf finds the template that a sandbox was created with.
func (h *App) TemplateOf(s sandboxes.Sandbox) (template.Template, error) {
	if s.Template == "host" {
		return template.Host(), nil
	}
	all, err := OpenTemplates(h.State, h.set.Progress)
	if err != nil {
		return template.Template{}, err
	}
	t, err := all.Reopen(s.Template, s.Digest)
	if err != nil {
		return t, &fault.Error{Err: err, Tip: "waldo template pull " + strings.TrimPrefix(s.Template, "tar:")}
	}
	return t, nil
}

// InSandbox returns what every call in a named sandbox runs with: the sandbox's level, root and shared folder.
func (h *App) InSandbox(is sandboxes.Sandbox) (o runner.Options, err error) {
	t, err := h.TemplateOf(is)
	if err != nil {
		return o, err
	}
	o.Isolation, o.Whole = is.Isolation, true
	o.Root, o.Image, o.Share = Root(t), t.Config, h.NamedSandboxes().Shared(is)
	return o, nil
}

// SessionOf returns the session of a named sandbox, which it opens in this process unless it is open.
func (h *App) SessionOf(is sandboxes.Sandbox) (call.Session, error) {
	n := call.Session(is.Session)
	if _, ok := h.Sessions.Get(n); ok {
		return n, nil
	}
	info, err := h.Sessions.Resume(n, call.Principal(is.Owner), is.Workspace)
	return info.ID, err
}

// NewSandbox describes a named sandbox on the machine's own root, with the disk that the contract of exec gives.
func (h *App) NewSandbox(owner, name string, idle time.Duration) sandboxes.Sandbox {
	is := sandboxes.Sandbox{Owner: owner, Name: name, Template: "host", Isolation: "auto", Idle: idle, Limits: DefaultLimits}
	if c, _ := h.InForce().Policy.Lookup("exec"); c.Run.DiskMB > 0 {
		is.Limits.Disk = int64(c.Run.DiskMB) << 20
	}
	return is
}

// Sandboxes opens the named sandboxes of an application. It first pauses and stops idle ones.
func (h *App) Sandboxes(ctx context.Context) (*sandboxes.Manager, error) {
	m := h.NamedSandboxes()
	_, err := m.Sweep(ctx)
	return m, err
}

// Owner returns the principal that owns the sandboxes of this command.
func Owner() string { return string(Principal()) }

// Reacher returns the driver of an isolation level where it reaches ports of its sandboxes; nil: it does not.
func (h *App) Reacher(level string) sandbox.Reacher {
	if level == "auto" || level == "" {
		level = h.Runner.Auto
	}
	driver, _ := h.Drivers[level].(sandbox.Reacher)
	return driver
}

// KindSandbox is the kind of the records about sandboxes and files of clients over HTTP, where no call leaves one.
const KindSandbox = "sandbox"

// SandboxRecord is the record of one such request.
type SandboxRecord struct {
	Op        string `json:"op"`
	Sandbox   string `json:"sandbox"`
	Principal string `json:"principal"`
	Path      string `json:"path,omitempty"`
	Bytes     int64  `json:"bytes,omitempty"`
	From      string `json:"from,omitempty"` // a snapshot or sandbox
}

// RecordSandbox writes the record, also where the request has ended.
func (h *App) RecordSandbox(ctx context.Context, r SandboxRecord) error {
	text, err := json.Marshal(r)
	if err == nil {
		_, err = h.Log.Append(context.WithoutCancel(ctx), KindSandbox, text, false)
	}
	return err
}
