// Package hosts is the configuration files of agent hosts: waldo import reads them, waldo install writes them.
package hosts

import (
	"github.com/spf13/cobra"

	"waldo/internal/cli"
	"waldo/internal/feature"
)

// Feature is waldo import and waldo install.
var Feature = feature.Feature{
	Name:     "hosts",
	Commands: func(g *cli.Context) []*cobra.Command { return []*cobra.Command{newImport(g), newInstall(g)} },
	Next:     tellImports,
}
