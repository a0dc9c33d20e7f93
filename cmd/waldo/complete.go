package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/app/secrets"
	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/frontend/terminal"
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
	}
	args := map[string]completer{
		"approve": approvalIDs, "approvals": approvalIDs, "deny": approvalIDs, "login": serverNames, "call": capabilities, "explain": capabilities,
		"secret rm": secretNames, "secret set": secretNames, "template rm": templateNames,
		"sandbox exec": sandboxNames, "sandbox port": sandboxNames, "lock": serverNames, "sandbox ps": sandboxNames, "sandbox logs": sandboxNames, "sandbox kill": sandboxNames, "sandbox pause": sandboxNames,
		"sandbox resume": sandboxNames, "sandbox snapshot": sandboxNames, "sandbox restore": sandboxNames, "sandbox reset": sandboxNames, "sandbox rm": sandboxNames,
	}
	var each func(c *cobra.Command, path string)
	each = func(c *cobra.Command, path string) {
		if values := args[path]; values != nil && c.ValidArgsFunction == nil {
			c.ValidArgsFunction = func(c *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
				if len(given) > 0 {
					return nil, cobra.ShellCompDirectiveDefault
				}
				return values(c.Context(), g), cobra.ShellCompDirectiveNoFileComp
			}
		}
		for name, values := range flags {
			if c.LocalFlags().Lookup(name) != nil {
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
	all, _ := sandboxes.New(s, time.Now).List(ctx, owner())
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
	s, err := openTemplates(state)
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
