package webhook

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"waldo/internal/feature/webhook/signature"
	"waldo/internal/frontend/terminal"
)

// names offers the webhooks of the configuration.
func (w commands) names(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	_, cfg, err := w.Configured()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(cfg.Webhooks)), cobra.ShellCompDirectiveNoFileComp
}

// schemes offers the schemes of signatures.
func (w commands) schemes(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return signature.Schemes(), cobra.ShellCompDirectiveNoFileComp
}

// waiting offers the ids of the webhooks that wait.
func (w commands) waiting(c *cobra.Command, _ []string, _ string) (out []string, _ cobra.ShellCompDirective) {
	s, err := w.OpenStorage()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer s.Close()
	all, _ := Queue(s).List(c.Context())
	for _, d := range all {
		out = append(out, cobra.CompletionWithDesc(d.ID, terminal.Brief(d.State+" "+d.Hook, 60)))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
