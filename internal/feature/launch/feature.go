package launch

import (
	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli"
	"waldo/internal/cli/records"
	"waldo/internal/executor/direct"
	"waldo/internal/feature"
	"waldo/internal/model/call"
)

// Feature is waldo launch.
var Feature = feature.Feature{
	Name:     "launch",
	Commands: func(g *cli.Context) []*cobra.Command { return []*cobra.Command{newLaunch(g)} },
	Tools:    func(app.Kit) []direct.Tool { return []direct.Tool{gitTool()} },
	Records:  records.Lines{Kind: line},
	Profiles: Names,
	Start:    startOf,
}

// Kind is the kind of the records about sessions of agent hosts.
const Kind = call.Launch

// Body is the record of one session's start.
type Body struct {
	Session   string   `json:"session"`
	Principal string   `json:"principal"`
	Host      string   `json:"host,omitempty"`
	Version   string   `json:"version,omitempty"`
	Program   string   `json:"program"`
	Project   string   `json:"project"`
	Hosts     []string `json:"hosts"`
}
