package hostimport

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/model/contract"
	"waldo/internal/model/wellknown"
)

// Proposed marks each line that waldo proposes.
const Proposed = "  # proposed by waldo"

// Proposal is the set of contracts that waldo proposes for a server. The zero value proposes nothing.
type Proposal struct {
	Hosts     []string   `json:"hosts,omitempty"`
	Data      string     `json:"data,omitempty"`
	Folders   []string   `json:"folders,omitempty"` // shown at their own paths, writable
	Contracts []Contract `json:"contracts,omitempty"`
	Source    string     `json:"source,omitempty"` // of the catalogue's row; empty: the server is not in it
}

// Contract is one proposed line under capabilities.
type Contract struct {
	Pattern string `json:"pattern"`
	Text    string `json:"text"`
}

// classes are the contracts of the catalogue's classes of tools. Only tools that change nothing outside the server's
// own data need no approval.
var classes = []struct {
	of   func(wellknown.Server) []string
	text string
}{
	{func(s wellknown.Server) []string { return s.Read }, "{mode: read, approval: none}"},
	{func(s wellknown.Server) []string { return s.Own }, "{mode: write, approval: none}"},
	{func(s wellknown.Server) []string { return s.Write }, "{mode: write, approval: always}"},
	{func(s wellknown.Server) []string { return s.Destructive }, "{mode: high_risk, approval: always}"},
}

// propose looks the server up in the catalogue. Every tool that the catalogue does not name requires approval.
func (p *plan) propose() {
	row, known := wellknown.Find(p.out.Command)
	q := &p.out.Propose
	if known {
		q.Hosts, q.Source = row.Hosts, row.Source
		if len(row.Data) > 0 {
			q.Data = p.out.Name + p.o.Data
		}
		if row.Folders {
			q.Folders = wellknown.Paths(p.out.Command)
		}
	}
	strictest := map[string]int{} // class of each tool with a settlement
	for i, c := range classes {
		for name := range row.Settle {
			if slices.ContainsFunc(c.of(row), func(tool string) bool { fits, _ := path.Match(tool, name); return fits }) {
				strictest[name] = i
			}
		}
	}
	for i, c := range classes {
		for _, tool := range c.of(row) {
			for _, name := range slices.Sorted(maps.Keys(row.Settle)) {
				if fits, _ := path.Match(tool, name); fits && strictest[name] == i {
					q.Contracts = append(q.Contracts, Contract{p.out.Name + "." + name, settled(c.text, p.out.Name, row.Settle[name])})
				}
			}
			if _, named := row.Settle[tool]; !named {
				q.Contracts = append(q.Contracts, Contract{p.out.Name + "." + tool, c.text})
			}
		}
	}
	q.Contracts = append(q.Contracts, Contract{p.out.Name + ".*", "{mode: write, approval: always}"})
}

// settled adds a settlement to the text of a contract.
func settled(text, server string, s wellknown.Settle) string {
	var args []string
	for _, name := range slices.Sorted(maps.Keys(s.Args)) {
		args = append(args, fmt.Sprintf("%s: %q", name, s.Args[name]))
	}
	with := ""
	if len(args) > 0 {
		with = ", args: {" + strings.Join(args, ", ") + "}"
	}
	return fmt.Sprintf("%s, settle: {by: %s.%s%s, happened: %q}}", strings.TrimSuffix(text, "}"), server, s.By, with, s.Happened)
}

// Mounts are the proposed folders as the configuration has them.
func (q Proposal) Mounts() (out []contract.Mount) {
	for _, dir := range q.Folders {
		out = append(out, contract.Mount{Target: dir, From: dir, Writable: true})
	}
	return out
}

// keys writes the proposed keys of a server.
func (q Proposal) keys(put func(format string, a ...any)) {
	if len(q.Hosts) > 0 {
		put("  network: {allow: [%s]}"+Proposed, strings.Join(q.Hosts, ", "))
	}
	if q.Data != "" {
		put("  data: %s"+Proposed, scalar(q.Data))
	}
	if len(q.Folders) > 0 {
		put("  mounts:" + Proposed)
	}
	for _, dir := range q.Folders {
		put("    %s: {from: %s, writable: true}"+Proposed, quote(dir), quote(dir))
	}
}

// contracts writes the proposed contracts of servers; "" where there are none.
func contracts(servers []Server, margin string) string {
	var b strings.Builder
	for _, s := range servers {
		if s.Held == "" && !s.Listed {
			for _, c := range s.Propose.Contracts {
				fmt.Fprintf(&b, "%s%s: %s%s\n", margin, c.Pattern, c.Text, Proposed)
			}
		}
	}
	return b.String()
}

// Covers reports whether contracts of a configuration speak of a server's tools, with a name or a pattern.
func Covers(cfg *contract.Config, server string) bool {
	return slices.ContainsFunc(cfg.Contracts, func(c contract.Contract) bool {
		before, _, wild := strings.Cut(c.Pattern, "*")
		return !c.BuiltIn && (strings.HasPrefix(before, server+".") || wild && strings.HasPrefix(server+".", before))
	})
}

// common are words of many servers' commands: they do not tell one from another.
var common = []string{
	"npx", "uvx", "pipx", "uv", "run", "node", "python", "python3", "docker", "podman", "bash", "sh", "stdio", "mcp",
	"serve",
}

// Like reports whether a configuration's server stands for this one, perhaps with other arguments: the same
// host of an address, or a word of the command that names what runs.
func (s Server) Like(c contract.Server) bool {
	if s.URL != "" || c.URL != "" {
		a, err := url.Parse(s.URL)
		b, fault := url.Parse(c.URL)
		return err == nil && fault == nil && a.Host != "" && a.Host == b.Host
	}
	if slices.Equal(s.Command, c.Command) {
		return true
	}
	return slices.ContainsFunc(s.Command, func(w string) bool {
		return !strings.HasPrefix(w, "-") && !slices.Contains(common, filepath.Base(w)) && slices.Contains(c.Command, w)
	})
}
