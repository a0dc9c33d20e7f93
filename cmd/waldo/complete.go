package main

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
	"waldo/internal/core/audit"
	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/id"
	"waldo/internal/storage/sandboxes"
)

// completer lists the possible values of a word on the command line. A source that fails offers no values.
type completer func(ctx context.Context, g *global) []string

func words(all ...string) completer {
	return func(context.Context, *global) []string { return all }
}

// completions gives every command below root the values of its flags and of its first arguments.
func completions(root *cobra.Command, g *global) {
	flags := map[string]completer{
		"lang": words("python", "javascript", "typescript", "shell"), "isolation": words("auto", "gvisor", "namespace", "confined"),
		"detail": words("name", "basic", "full"), "format": words("jsonl", "csv"), "effect": words("allow", "ask", "deny"),
		"key": words("file", "keyring"), "color": words("auto", "always", "never"), "template": templateNames, "secret": secretNames,
		"accept": serverNames, "show": serverNames, "approval": approvalIDs, "capability": capabilities, "environment": environments, "as": approvers, "revoke": approvers, "role": roles, "only": serverNames,
		"from": snapshotIDs, "rm": snapshotIDs, "call": callIDs,
	}
	args := map[string]completer{
		"approve": approvalIDs, "approvals": approvalIDs, "deny": approvalIDs, "login": serverNames, "call": capabilities, "explain": both(capabilities, callIDs),
		"log show": callIDs, "stop": stoppable,
		"secret rm": secretNames, "secret set": secretNames, "template rm": templateNames,
		"sandbox exec": sandboxNames, "sandbox port": sandboxNames, "lock": serverNames, "sandbox ps": sandboxNames, "sandbox logs": sandboxNames, "sandbox kill": sandboxNames, "sandbox pause": sandboxNames,
		"sandbox resume": sandboxNames, "sandbox snapshot": sandboxNames, "sandbox restore": sandboxNames, "sandbox reset": sandboxNames, "sandbox rm": sandboxNames,
	}
	second := map[string]func(ctx context.Context, g *global, first string) []string{
		"sandbox restore": snapshotsOf, "sandbox kill": commandsOf, "sandbox logs": commandsOf,
	}
	var each func(c *cobra.Command, path string)
	each = func(c *cobra.Command, path string) {
		if values := args[path]; values != nil && c.ValidArgsFunction == nil {
			c.ValidArgsFunction = func(c *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
				if more := second[path]; more != nil && len(given) == 1 {
					return more(c.Context(), g, given[0]), cobra.ShellCompDirectiveNoFileComp
				}
				if len(given) > 0 {
					return nil, cobra.ShellCompDirectiveDefault
				}
				return values(c.Context(), g), cobra.ShellCompDirectiveNoFileComp
			}
		}
		for name, values := range flags {
			if f := c.LocalFlags().Lookup(name); f != nil && f.Value.Type() != "bool" {
				_ = c.RegisterFlagCompletionFunc(name, func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
					return values(c.Context(), g), cobra.ShellCompDirectiveNoFileComp
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
	return func(ctx context.Context, g *global) []string { return append(a(ctx, g), b(ctx, g)...) }
}

// stoppable are the principals that waldo knows.
func stoppable(ctx context.Context, g *global) []string {
	_, s, err := openStore(g)
	if err != nil {
		return nil
	}
	defer s.Close()
	return principals(ctx, g, s)
}

// maxCallIDs is the number of recent calls that a completion offers.
const maxCallIDs = 30

// callIDs are the ids of the last decided calls.
func callIDs(ctx context.Context, g *global) (out []string) {
	state, err := openState(g)
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

func snapshotIDs(ctx context.Context, g *global) []string { return snapshotsOf(ctx, g, "") }

func snapshotsOf(ctx context.Context, g *global, _ string) (out []string) {
	_, s, err := openStore(g)
	if err != nil {
		return nil
	}
	defer s.Close()
	all, _ := sandboxes.New(s, time.Now).Snapshots(ctx, app.Owner())
	for _, p := range all {
		out = append(out, cobra.CompletionWithDesc(p.ID, terminal.Brief(p.Of.Name+", "+p.Created.Format(time.RFC3339), 60)))
	}
	return out
}

// commandsOf are the ids of the commands that run in a sandbox.
func commandsOf(ctx context.Context, g *global, name string) (out []string) {
	_, s, err := openStore(g)
	if err != nil {
		return nil
	}
	defer s.Close()
	all, _ := sandboxes.New(s, time.Now).Commands(ctx, app.Owner(), name)
	for _, one := range all {
		out = append(out, cobra.CompletionWithDesc(one.Call, terminal.Brief(one.Line, 60)))
	}
	return out
}

// environments are the names that the configuration knows.
func environments(_ context.Context, g *global) (out []string) {
	_, cfg, err := configured(&global{config: g.config, trusted: g.trusted, state: g.state}) // without what is being typed
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

func approvers(ctx context.Context, g *global) (out []string) {
	k, done, err := desk(g)
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
func roles(_ context.Context, g *global) []string {
	_, cfg, err := configured(g)
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(cfg.Approval.Roles))
}

func approvalIDs(ctx context.Context, g *global) (out []string) {
	k, done, err := desk(g)
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

func sandboxNames(ctx context.Context, g *global) (out []string) {
	_, s, err := openStore(g)
	if err != nil {
		return nil
	}
	defer s.Close()
	all, _ := sandboxes.New(s, time.Now).List(ctx, app.Owner())
	for _, b := range all {
		out = append(out, b.Name)
	}
	return out
}

func serverNames(_ context.Context, g *global) []string {
	_, cfg, err := configured(g)
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(cfg.Servers))
}

func secretNames(_ context.Context, g *global) (out []string) {
	state, cfg, err := configured(g)
	if err == nil {
		out = slices.Collect(maps.Keys(secrets.Named(state, cfg)))
	}
	slices.Sort(out)
	return out
}

func templateNames(_ context.Context, g *global) (out []string) {
	state, err := openState(g)
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
func capabilities(_ context.Context, g *global) (out []string) {
	_, cfg, err := configured(g)
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
