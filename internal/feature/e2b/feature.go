// Package e2b answers the clients of E2B: a control plane of sandboxes, their files and processes, and a code
// interpreter. Each of its sandboxes is a named sandbox of waldo, and each command a call that a contract decides.
package e2b

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"waldo/internal/app"
	"waldo/internal/cli"
	"waldo/internal/cli/records"
	"waldo/internal/feature"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

// Feature is waldo e2b.
var Feature = feature.Feature{
	Name:     "e2b",
	Commands: func(g *cli.Context) []*cobra.Command { return []*cobra.Command{newCommand(g)} },
	Records:  records.Lines{app.KindSandbox: line},
}

// line summarises a record in one line of waldo log.
func line(_ terminal.Paint, body json.RawMessage) display.Text {
	var b record
	_ = json.Unmarshal(body, &b)
	text := display.Sprintf("%s %s by %s", b.Op, b.Sandbox, b.Principal)
	if b.Path != "" {
		text += display.Sprintf(": %s, %d bytes", b.Path, b.Bytes)
	}
	if b.From != "" {
		text += display.Sprintf(" from %s", b.From)
	}
	return text
}
