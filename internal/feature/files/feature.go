package files

import (
	"context"
	"strings"
	"time"

	"waldo/internal/app"
	"waldo/internal/app/advice"
	"waldo/internal/core/policy"
	"waldo/internal/executor/direct"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/feature"
	"waldo/internal/model/contract"
)

// Feature is the tools files.*.
var Feature = feature.Feature{
	Name: "files",
	Open: func(h *app.App) (app.Running, error) {
		return app.Running{Sweep: func(_ context.Context, now time.Time) error {
			return sweep(h.State, now.Add(-app.Retention))
		}}, nil
	},
	Tools: func(k app.Kit) []direct.Tool { return Tools(k.State, k.Machine, k.Work, k.Redact) },
	Check: check,
}

// check warns of contracts whose folder is absent, or that let an agent write under the name of reading.
func check(_ context.Context, place app.Place, p *policy.Policy) (problems, warnings contract.Problems) {
	tools := Tools("", files.Machine{}, nil, nil)
	for c := range advice.Contracts(place.Config, p) {
		var writing []string
		inFolder := false
		for _, t := range tools {
			name := t.Capability
			if !c.Decides(name) {
				continue
			}
			inFolder = true
			if own, _ := c.Resolve(string(name), &contract.Config{}).OwnMode(string(name)); own == contract.Write {
				writing = append(writing, string(name))
			}
		}
		if c.ForServers() || !inFolder {
			continue
		}
		if len(writing) > 0 && c.Root != "" && c.Mode == contract.Read && c.Approval.When != contract.Always {
			warnings = append(warnings, c.Problem("mode", "mode.covers", "name the tools that read: files.read, files.list, "+
				"files.stat, files.search; or write mode: write or approval: always",
				"mode: read of %q covers tools that write (danger 2) and run without a question: %s", c.Pattern,
				strings.Join(writing, ", ")))
		}
		if c.Root == "" {
			warnings = append(warnings, c.Problem("", "root.missing", "write root, as in root: ./project; it is relative to "+
				"the folder of this file", "%q names no folder: its calls are denied", c.Pattern))
		} else if absent, why := advice.AbsentRoot(c.Contract); absent != "" {
			warnings = append(warnings, c.Problem("root", "root.absent", "make the folder, or name another: it is relative to "+
				"the folder of this file", "%s", why))
		}
	}
	return nil, warnings
}
