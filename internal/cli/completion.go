package cli

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/app/secrets"
	"waldo/internal/core/audit"
	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/id"
)

// completer lists the possible values of a word on the command line. A source that fails offers no values.
type completer func(ctx context.Context) []string

func words(all ...string) completer {
	return func(context.Context) []string { return all }
}

// Complete gives every command below root the values of its flags and of its first arguments.
func (w *Context) Complete(root *cobra.Command) {
	flags := map[string]completer{
		"lang":      words("python", "javascript", "typescript", "shell"),
		"isolation": words("auto", "gvisor", "namespace", "confined", "engine"),
		"detail":    words("name", "basic", "full"),
		"effect":    words("allow", "ask", "deny"), "key": words("file", "keyring"),
		"color": words("auto", "always", "never"), "like": words(w.Profiles...), "template": w.templateNames, "secret": w.secretNames, "accept": w.Servers,
		"show": w.Servers, "approval": w.approvalIDs, "capability": w.capabilities, "environment": w.environments,
		"as": w.approvers, "revoke": w.approvers, "role": w.roles, "only": w.Servers, "from": w.snapshotIDs,
		"rm": w.snapshotIDs, "call": w.callIDs,
	}
	args := map[string]completer{
		"approve": w.approvalIDs, "approvals": w.approvalIDs, "deny": w.approvalIDs, "login": w.Servers,
		"call": w.capabilities, "explain": both(w.capabilities, w.callIDs), "log show": w.callIDs, "stop": w.stoppable,
		"secret rm": w.secretNames, "secret set": w.secretNames, "template rm": w.templateNames,
		"sandbox exec": w.sandboxNames, "sandbox port": w.sandboxNames, "lock": w.Servers, "sandbox ps": w.sandboxNames,
		"sandbox logs": w.sandboxNames, "sandbox kill": w.sandboxNames, "sandbox pause": w.sandboxNames,
		"sandbox resume": w.sandboxNames, "sandbox snapshot": w.sandboxNames, "sandbox restore": w.sandboxNames,
		"sandbox reset": w.sandboxNames, "sandbox rm": w.sandboxNames,
	}
	second := map[string]func(ctx context.Context, first string) []string{
		"sandbox restore": w.snapshotsOf, "sandbox kill": w.commandsOf, "sandbox logs": w.commandsOf,
	}
	var each func(c *cobra.Command, path string)
	each = func(c *cobra.Command, path string) {
		if values := args[path]; values != nil && c.ValidArgsFunction == nil {
			c.ValidArgsFunction = func(c *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
				if more := second[path]; more != nil && len(given) == 1 {
					return more(c.Context(), given[0]), cobra.ShellCompDirectiveNoFileComp
				}
				if len(given) > 0 {
					return nil, cobra.ShellCompDirectiveDefault
				}
				return values(c.Context()), cobra.ShellCompDirectiveNoFileComp
			}
		}
		for name, values := range flags {
			if f := c.LocalFlags().Lookup(name); f != nil && f.Value.Type() != "bool" {
				_ = c.RegisterFlagCompletionFunc(name,
					func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
						return values(c.Context()), cobra.ShellCompDirectiveNoFileComp
					}) // an error: the command has its own
			}
		}
		for _, sub := range c.Commands() {
			below := sub.Name()
			if path != "" {
				below = path + " " + below
			}
			each(sub, below)
		}
	}
	each(root, "")
}

// both offers the values of two sources.
func both(a, b completer) completer {
	return func(ctx context.Context) []string { return append(a(ctx), b(ctx)...) }
}

// stoppable are the principals that waldo knows.
func (w *Context) stoppable(ctx context.Context) []string {
	s, err := w.OpenStorage()
	if err != nil {
		return nil
	}
	defer s.Close()
	_, cfg, _ := w.Configured() // without it, those of its tokens are left out
	return s.Principals(ctx, cfg)
}

// maxCallIDs is the number of recent calls that a completion offers.
const maxCallIDs = 30

// callIDs are the ids of the last decided calls.
func (w *Context) callIDs(ctx context.Context) (out []string) {
	state, err := w.StateDir()
	if err != nil {
		return nil
	}
	decided := audit.Selection{Last: maxCallIDs, Kind: audit.KindDecision}
	_, _ = audit.Select(ctx, audit.Dir(state), decided, func(r audit.Record) error {
		var l struct {
			CallID     string `json:"call_id"`
			Effect     string
			Capability string
		}
		if json.Unmarshal(r.Body, &l) == nil && id.Is(id.Call, l.CallID) {
			out = append(out, cobra.CompletionWithDesc(l.CallID, terminal.Brief(l.Effect+" "+l.Capability, 60)))
		}
		return nil
	})
	slices.Reverse(out)
	return out
}

func (w *Context) snapshotIDs(ctx context.Context) []string { return w.snapshotsOf(ctx, "") }

func (w *Context) snapshotsOf(ctx context.Context, _ string) (out []string) {
	s, err := w.OpenStorage()
	if err != nil {
		return nil
	}
	defer s.Close()
	all, _ := s.NamedSandboxes().Snapshots(ctx, app.Owner())
	for _, p := range all {
		out = append(out, cobra.CompletionWithDesc(p.ID, terminal.Brief(p.Of.Name+", "+p.Created.Format(time.RFC3339), 60)))
	}
	return out
}

// commandsOf are the ids of the commands that run in a sandbox.
func (w *Context) commandsOf(ctx context.Context, name string) (out []string) {
	s, err := w.OpenStorage()
	if err != nil {
		return nil
	}
	defer s.Close()
	all, _ := s.NamedSandboxes().Commands(ctx, app.Owner(), name)
	for _, one := range all {
		out = append(out, cobra.CompletionWithDesc(one.Call, terminal.Brief(one.Line, 60)))
	}
	return out
}

// environments are the names that the configuration knows.
func (w *Context) environments(_ context.Context) (out []string) {
	// --environment may be what is typed
	_, cfg, err := (&Context{Config: w.Config, Trusted: w.Trusted, State: w.State}).Configured()
	if err != nil {
		return nil
	}
	out = append(out, cfg.Environment)
	for _, c := range cfg.Contracts {
		out = append(out, c.Environments...)
	}
	for _, s := range cfg.Secrets {
		out = slices.AppendSeq(out, maps.Keys(s.In))
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(name string) bool { return name == "" })
}

func (w *Context) approvers(ctx context.Context) (out []string) {
	k, done, err := w.OpenApprovals()
	if err != nil {
		return nil
	}
	defer done()
	all, _ := k.Approvers(ctx)
	for _, a := range all {
		out = append(out, a.Name)
	}
	return out
}

// roles are the roles that the configuration names.
func (w *Context) roles(_ context.Context) []string {
	_, cfg, err := w.Configured()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(cfg.Approval.Roles))
}

func (w *Context) approvalIDs(ctx context.Context) (out []string) {
	k, done, err := w.OpenApprovals()
	if err != nil {
		return nil
	}
	defer done()
	open, _ := k.Pending(ctx)
	for _, q := range open {
		out = append(out, cobra.CompletionWithDesc(q.ID, terminal.Brief(string(q.Capability), 60)))
	}
	return out
}

func (w *Context) sandboxNames(ctx context.Context) (out []string) {
	s, err := w.OpenStorage()
	if err != nil {
		return nil
	}
	defer s.Close()
	all, _ := s.NamedSandboxes().List(ctx, app.Owner())
	for _, b := range all {
		out = append(out, b.Name)
	}
	return out
}

// Servers are the names of the servers that the configuration has.
func (w *Context) Servers(_ context.Context) []string {
	_, cfg, err := w.Configured()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(cfg.Servers))
}

func (w *Context) secretNames(_ context.Context) (out []string) {
	state, cfg, err := w.Configured()
	if err == nil {
		out = slices.Collect(maps.Keys(secrets.Named(state, cfg)))
	}
	slices.Sort(out)
	return out
}

func (w *Context) templateNames(_ context.Context) (out []string) {
	state, err := w.StateDir()
	if err != nil {
		return nil
	}
	s, err := app.OpenTemplates(state, nil)
	if err != nil {
		return nil
	}
	all, _ := s.List()
	for _, t := range all {
		out = append(out, t.Name)
	}
	return append(out, "host")
}

// capabilities are the names that the configuration's contracts give, without their patterns: no server is started
// for a completion.
func (w *Context) capabilities(_ context.Context) (out []string) {
	_, cfg, err := w.Configured()
	if err != nil {
		return nil
	}
	for _, c := range cfg.Contracts {
		if catalog.Named(c.Pattern) {
			out = append(out, c.Pattern)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
