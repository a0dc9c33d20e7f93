// Package delegation is waldo delegate: tokens for children with a part of the authority of their parent. The pipeline's
// part is internal/core/delegation.
package delegation

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"waldo/internal/cli"
	"waldo/internal/cli/records"
	"waldo/internal/core/audit"
	"waldo/internal/core/delegation"
	"waldo/internal/feature"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

// Feature is waldo delegate.
var Feature = feature.Feature{
	Name:     "delegation",
	Commands: func(g *cli.Context) []*cobra.Command { return []*cobra.Command{newDelegate(g)} },
	Records:  records.Lines{audit.KindDelegation: line},
}

// line shows a record of a delegation in one line of waldo log.
func line(p terminal.Paint, body json.RawMessage) display.Text {
	var r delegation.Record
	_ = json.Unmarshal(body, &r)
	if r.Action == delegation.Revoked {
		return display.Sprintf("%s %s by %s", p.Bad("revoked"), r.ID, r.By)
	}
	text := display.Sprintf("%s %s by %s to %s", p.Good("created"), r.ID, r.By, r.For)
	if r.Parent != "" {
		text += display.Sprintf(", below %s", r.Parent)
	}
	return text
}
