package launch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

// line summarises a session's start in one line of waldo log.
func line(_ terminal.Paint, body json.RawMessage) display.Text {
	var b Body
	_ = json.Unmarshal(body, &b)
	return display.Sprintf("%s %s in %s, session %s as %s", cmp.Or(b.Host, b.Program), b.Version, b.Project, b.Session,
		b.Principal)
}

// row is one line of --explain.
type row struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// rows say in ten lines what the agent can do.
func (p plan) rows() []row {
	if p.contract.Denied {
		return []row{{"denied", fmt.Sprintf("%s, line %d: launch: deny", p.contract.At.File, p.contract.At.Line)}}
	}
	var shown []string
	for _, m := range p.mounts {
		if !m.Writable {
			shown = append(shown, m.Source)
		}
	}
	reach := p.contract.Network.Allow
	for _, m := range slices.Sorted(maps.Keys(p.contract.Network.Packages)) {
		reach = append(reach, "packages of "+m)
	}
	key := "none found: the host asks for a login inside, which is not kept from it"
	if p.key != "" {
		key = p.key + " is a placeholder; waldo puts the key into requests to the model"
	}
	l := p.contract.Run
	host := cmp.Or(p.profile.Title, p.command)
	if p.program.version != "" {
		host += " " + p.program.version
	}
	where := map[string]string{"review": " (aside, until you take it: waldo changes)", "discard": " (dropped at the end)"}
	writes := p.project
	if p.repository != "" {
		writes += " and its repository " + p.repository
	}
	return []row{
		{"host", host + ", " + p.program.path + p.untested()},
		{"writes", writes + where[p.changes] + ", a home of its own for this project, and /tmp"},
		{"but not", cmp.Or(several(p.sealed), "(nothing here runs later outside)") + hidden(p.hidden)},
		{"reads", several(append([]string{"/usr"}, shown...)) + "; nothing else of this machine"},
		{"reaches", cmp.Or(several(reach), "nothing") + p.forwarded()},
		{"off", cmp.Or(several(p.contract.Network.Off), "nothing")},
		{"key", key},
		{"asks for", "every other tool of waldo.yaml, through waldo, its only MCP server: waldo tools" + p.offer()},
		{"sandbox", fmt.Sprintf("isolation %s, %d MB, %d processes, %d files, no limit of time", p.contract.Isolation,
			l.MemoryMB, l.Pids, l.Files)},
		{"says", cmp.Or(p.profile.OwnSandbox, "the program is not known: its own sandbox may not start in this one")},
	}
}

// forwarded names the ports by which the person reaches the session.
func (p plan) forwarded() (text string) {
	for _, port := range p.ports {
		text += fmt.Sprintf("; you reach its port %d at 127.0.0.1:%d", port[0], port[1])
	}
	return text
}

// offer names the MCP servers of the host's configuration, which stay outside, and how waldo takes them over.
func (p plan) offer() string {
	for _, name := range p.profile.Servers {
		if (home{person: p.person}).hasServers(name) {
			return "; the servers of ~/" + name + " are not started: waldo import --from " + p.profile.Name + " takes them over"
		}
	}
	return ""
}

// hidden returns what a project does not show.
func hidden(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; not shown: " + several(names)
}

// untested is a note where the version is outside of the tested ones.
func (p plan) untested() string {
	v := p.profile.Tested
	if p.profile.Name == "" || p.program.version == "" || v.Has(p.program.version) {
		return ""
	}
	return " (tested from " + v.From + " to below " + v.Below + ")"
}

// several joins a list, and counts what is beyond six.
func several(all []string) string {
	const some = 6
	if len(all) <= some {
		return strings.Join(all, ", ")
	}
	return strings.Join(all[:some], ", ") + fmt.Sprintf(" and %d more", len(all)-some)
}

func (l *command) tellPlan(c *cobra.Command, p plan) error {
	rows := p.rows()
	if l.JSON {
		return terminal.JSON(c.OutOrStdout(), rows)
	}
	for _, r := range rows {
		display.Fprintf(c.OutOrStdout(), "%-9s %s\n", r.Name, r.Text)
	}
	return nil
}
