// Package completing offers the possible values of flags and arguments to the shell's completion.
package completing

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"waldo/cmd/waldo/records"
	"waldo/internal/app"
	"waldo/internal/app/secrets"
	"waldo/internal/config/starter"
	"waldo/internal/core/approval"
	"waldo/internal/core/audit"
	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
	"waldo/internal/protocol/webhook"
)

// Waldo holds the sources of the values. Each function honours the flags that were given so far.
type Waldo struct {
	State      func() (string, error)
	Storage    func() (*app.Storage, error)
	Config     func() (string, *contract.Config, error)
	Everywhere func() (string, *contract.Config, error) // the same without --environment, which may be what is typed
	Approvals  func() (*approval.Service, func() error, error)
}

// completer lists the possible values of a word on the command line. A source that fails offers no values.
type completer func(ctx context.Context) []string

func words(all ...string) completer {
	return func(context.Context) []string { return all }
}

// Give gives every command below root the values of its flags and of its first arguments.
func (w Waldo) Give(root *cobra.Command) {
	flags := map[string]completer{
		"lang":      words("python", "javascript", "typescript", "shell"),
		"isolation": words("auto", "gvisor", "namespace", "confined", "engine"),
		"detail":    words("name", "basic", "full"),
		"format":    words("jsonl", "csv"), "effect": words("allow", "ask", "deny"), "key": words("file", "keyring"),
		"color": words("auto", "always", "never"), "like": words(starter.Profiles()...), "template": w.templateNames, "secret": w.secretNames, "accept": w.Servers,
		"show": w.Servers, "approval": w.approvalIDs, "capability": w.capabilities, "environment": w.environments,
		"as": w.approvers, "revoke": w.approvers, "role": w.roles, "only": w.Servers, "from": w.snapshotIDs,
		"rm": w.snapshotIDs, "call": w.callIDs, "scheme": words(webhook.Schemes()...), "hook": w.hooks,
	}
	args := map[string]completer{
		"approve": w.approvalIDs, "approvals": w.approvalIDs, "deny": w.approvalIDs, "login": w.Servers,
		"call": w.capabilities, "explain": both(w.capabilities, w.callIDs), "log show": w.callIDs, "stop": w.stoppable,
		"secret rm": w.secretNames, "secret set": w.secretNames, "template rm": w.templateNames,
		"hook show": w.deliveryIDs, "hook retry": w.deliveryIDs, "hook drop": w.deliveryIDs,
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
func (w Waldo) stoppable(ctx context.Context) []string {
	s, err := w.Storage()
	if err != nil {
		return nil
	}
	defer s.Close()
	_, cfg, _ := w.Config() // without it, those of its tokens are left out
	return s.Principals(ctx, cfg)
}

// hooks are the webhooks of the configuration.
func (w Waldo) hooks(context.Context) []string {
	_, cfg, err := w.Config()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(cfg.Webhooks))
}

// deliveryIDs are the ids of the webhooks that wait.
func (w Waldo) deliveryIDs(ctx context.Context) (out []string) {
	s, err := w.Storage()
	if err != nil {
		return nil
	}
	defer s.Close()
	all, _ := s.Webhooks().List(ctx)
	for _, d := range all {
		out = append(out, cobra.CompletionWithDesc(d.ID, terminal.Brief(d.State+" "+d.Hook, 60)))
	}
	return out
}

// maxCallIDs is the number of recent calls that a completion offers.
const maxCallIDs = 30

// callIDs are the ids of the last decided calls.
func (w Waldo) callIDs(ctx context.Context) (out []string) {
	state, err := w.State()
	if err != nil {
		return nil
	}
	decided := audit.Selection{Last: maxCallIDs, Match: func(r audit.Record) bool { return r.Kind == audit.KindDecision }}
	_, _ = audit.Select(ctx, audit.Dir(state), decided, func(r audit.Record) error {
		var l records.Line
		if json.Unmarshal(r.Body, &l) == nil && id.Is(id.Call, l.CallID) {
			out = append(out, cobra.CompletionWithDesc(l.CallID, terminal.Brief(l.Effect+" "+l.Capability, 60)))
		}
		return nil
	})
	slices.Reverse(out)
	return out
}

func (w Waldo) snapshotIDs(ctx context.Context) []string { return w.snapshotsOf(ctx, "") }

func (w Waldo) snapshotsOf(ctx context.Context, _ string) (out []string) {
	s, err := w.Storage()
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
func (w Waldo) commandsOf(ctx context.Context, name string) (out []string) {
	s, err := w.Storage()
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
func (w Waldo) environments(_ context.Context) (out []string) {
	_, cfg, err := w.Everywhere()
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

func (w Waldo) approvers(ctx context.Context) (out []string) {
	k, done, err := w.Approvals()
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
func (w Waldo) roles(_ context.Context) []string {
	_, cfg, err := w.Config()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(cfg.Approval.Roles))
}

func (w Waldo) approvalIDs(ctx context.Context) (out []string) {
	k, done, err := w.Approvals()
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

func (w Waldo) sandboxNames(ctx context.Context) (out []string) {
	s, err := w.Storage()
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
func (w Waldo) Servers(_ context.Context) []string {
	_, cfg, err := w.Config()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(cfg.Servers))
}

func (w Waldo) secretNames(_ context.Context) (out []string) {
	state, cfg, err := w.Config()
	if err == nil {
		out = slices.Collect(maps.Keys(secrets.Named(state, cfg)))
	}
	slices.Sort(out)
	return out
}

func (w Waldo) templateNames(_ context.Context) (out []string) {
	state, err := w.State()
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
func (w Waldo) capabilities(_ context.Context) (out []string) {
	_, cfg, err := w.Config()
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
