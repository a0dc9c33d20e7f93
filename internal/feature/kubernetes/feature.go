// Package kubernetes proves an installation of waldo in a cluster: waldo doctor --kubernetes. deploy/helm/waldo is the
// chart. It asks the API server over plain HTTPS; RATIONALE.md has the reason.
package kubernetes

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"waldo/internal/app/fault"
	"waldo/internal/cli"
	"waldo/internal/feature"
	"waldo/internal/sandbox"
	"waldo/internal/storage/database"
)

// Feature is waldo doctor --kubernetes, and the command that prepares a volume.
var Feature = feature.Feature{
	Name:     "kubernetes",
	Commands: func(*cli.Context) []*cobra.Command { return []*cobra.Command{newStateFolder()} },
	Examine:  examine,
}

// newStateFolder makes a state directory in the root of a volume, which others can write. The chart's pods mount the
// folder itself, so nothing above it belongs to others.
func newStateFolder() *cobra.Command {
	return &cobra.Command{
		Use: "state-folder DIR", Short: "Make a state directory in a volume of a pod", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return database.MakeDir(args[0]) },
	}
}

// examine adds the flags of waldo doctor.
func examine(c *cobra.Command) func(context.Context) ([]sandbox.Report, error) {
	var on bool
	var file, namespace string
	var open, closed []string
	f := c.Flags()
	f.BoolVar(&on, "kubernetes", false, "prove the cluster's guards, too: in a pod, or with --kubeconfig")
	f.StringVar(&file, "kubeconfig", "", "with --kubernetes: ask as the current context of `FILE`")
	f.StringVar(&namespace, "namespace", "", "with --kubernetes: the `NAME` of waldo's namespace (default: the pod's)")
	f.StringArrayVar(&open, "reachable", nil, "with --kubernetes: `HOST:PORT` that policies of the network allow")
	f.StringArrayVar(&closed, "unreachable", nil, "with --kubernetes: `HOST:PORT` that they deny")
	return func(ctx context.Context) ([]sandbox.Report, error) {
		if !on {
			if file != "" || namespace != "" || len(open)+len(closed) > 0 {
				return nil, fault.Usage("add --kubernetes", "this flag is for waldo doctor --kubernetes")
			}
			return nil, nil
		}
		c, err := inside()
		if file != "" {
			c, err = fromFile(file)
		}
		if err != nil {
			return nil, err
		}
		if namespace != "" {
			c.namespace = namespace
		}
		if c.namespace == "" {
			return nil, fault.Usage("give --namespace NAME", "the kubeconfig's context has no namespace")
		}
		r := sandbox.Report{Driver: fmt.Sprintf("kubernetes, namespace %s", c.namespace)}
		r.Abilities = append(c.examine(ctx), network(ctx, file == "", open, closed)...)
		r.OK = !slices.ContainsFunc(r.Abilities, func(a sandbox.Ability) bool { return a.Need && !a.OK })
		return []sandbox.Report{r}, nil
	}
}
