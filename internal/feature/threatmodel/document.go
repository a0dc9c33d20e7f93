package threatmodel

import (
	"fmt"
	"html"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/sandbox"
)

// Document writes the threat model in Markdown. The reports say what this machine can hold; nil: nobody asked it.
func Document(cfg *contract.Config, machine []sandbox.Report) string {
	facts := Reach(cfg)
	d := &document{cfg: cfg, facts: facts}
	name := filepath.Base(cfg.File)
	if cfg.File == "" {
		name = "the built-in contracts"
	}
	d.line("# Threat model of %s", name)
	d.line("")
	d.line("Written by `waldo threatmodel` from the contracts. The agent's model counts as hostile, and so does every server.")
	d.threats()
	d.model()
	d.servers()
	d.tools()
	d.table()
	d.machine(machine)
	d.line("")
	d.line("## Reach")
	d.line("")
	d.line("`waldo threatmodel --check FILE` fails if a line is missing here that the configuration has.")
	d.line("")
	d.line(fence + "reach")
	for _, f := range facts {
		d.line("%s", f)
	}
	d.line(fence)
	return d.b.String()
}

type document struct {
	b     strings.Builder
	cfg   *contract.Config
	facts []Fact
}

func (d *document) line(format string, a ...any) { fmt.Fprintf(&d.b, format+"\n", a...) }

// of returns the facts that say one of these things, perhaps of one subject.
func (d *document) of(who string, what ...string) (out []Fact) {
	for _, f := range d.facts {
		if (who == "" || f.Who == who) && slices.Contains(what, f.What) {
			out = append(out, f)
		}
	}
	return out
}

func cell(s string) string { return strings.ReplaceAll(display.ASCII(s), "|", "\\|") }

func place(at contract.Position) string {
	if at.File == "" {
		return "built in"
	}
	if at.Line == 0 {
		return filepath.Base(at.File)
	}
	return fmt.Sprintf("%s:%d", filepath.Base(at.File), at.Line)
}

// threats is the table of assets.
func (d *document) threats() {
	d.line("")
	d.line("## Assets")
	d.line("")
	d.line("| asset | threat | guardrail | residual risk |")
	d.line("|---|---|---|---|")
	for _, f := range d.of("", holds) {
		residual, guard := "misuse through the allowed calls", "waldo adds it to requests; no sandbox has it"
		if len(slices.DeleteFunc(d.of(f.Who, reveals), func(r Fact) bool { return r.Object != f.Object })) > 0 {
			residual, guard = "whoever controls "+f.Who+" has the secret", "it is given to "+f.Who+" alone"
		}
		d.line("| secret %s | read, or sent away | %s (%s) | %s |", cell(f.Object), cell(guard), place(f.At), cell(residual))
	}
	for _, f := range d.of("", writes) {
		d.line("| folder %s | changed or deleted | %s (%s) | every file in it, by %s |", cell(f.Object),
			d.question(f.Who), place(f.At), cell(f.Who))
	}
	for _, f := range d.of("", reads) {
		if !slices.ContainsFunc(d.of(f.Who, writes), func(w Fact) bool { return w.Object == f.Object }) {
			d.line("| folder %s | read, and sent away | read-only; %s (%s) | what it holds reaches the model |",
				cell(f.Object), cell(f.Who), place(f.At))
		}
	}
	for _, f := range d.of("", connects) {
		d.line("| host %s | data leaves to it | no other host; %s (%s) | what %s knows can go there |", cell(f.Object),
			cell(f.Who), place(f.At), cell(f.Who))
	}
	for _, f := range d.of("", queries) {
		d.line("| database %s | read | a role that only reads; %s (%s) | every row that the role sees |", cell(f.Object),
			cell(f.Who), place(f.At))
	}
	for _, f := range d.of("", outside) {
		d.line("| this machine | everything | trust alone (%s) | %s has all rights of waldo's user |", place(f.At), cell(f.Who))
	}
	d.line("| the record of calls | erased or rewritten | hash chain, heads, checkpoints | who rules this machine, without a witness |")
}

// question returns whether a human is asked about the capabilities of a subject.
func (d *document) question(who string) string {
	if server, ok := strings.CutPrefix(who, "server "); ok {
		for _, c := range d.cfg.Contracts {
			if r := c.Resolve(c.Pattern, d.cfg); !c.Denied && r.Server == server && r.Approval.When != contract.Always && r.Mode != contract.Read {
				return "some writes without a question"
			}
		}
		return "a human answers every write"
	}
	switch {
	case slices.ContainsFunc(d.of(who, unasked), func(f Fact) bool { return f.Object == "" }):
		return "no question"
	case len(d.of(who, unasked)) > 0:
		return "a question for some arguments"
	}
	return "a human answers every call"
}

// model returns what a fully compromised model can do.
func (d *document) model() {
	d.line("")
	d.line("## A fully compromised model")
	d.line("")
	d.line("It can do the following without any human:")
	d.line("")
	n := 0
	for _, c := range d.cfg.Contracts {
		r := c.Resolve(c.Pattern, d.cfg)
		if c.Denied || r.Approval.When == contract.Always {
			continue
		}
		n++
		some := ""
		if r.Approval.When == contract.If {
			some = ", where its condition is false"
		}
		d.line("- `%s` (%s, danger %d)%s: %s", display.ASCII(c.Pattern), place(c.At), r.Danger, some, d.radius(r))
	}
	if n == 0 {
		d.line("- nothing: a human answers every call.")
	}
}

// radius is the blast radius of a contract in one sentence.
func (d *document) radius(c contract.Contract) string {
	who, subject := c.Pattern, "it"
	if c.Transport == contract.MCP {
		who, subject = "server "+c.Server, "the server"
	}
	var parts []string
	for _, x := range []struct{ what, word string }{{writes, "changes"}, {connects, "reaches"}, {reads, "reads"}, {queries, "queries"}, {holds, "uses"}} {
		var objects []string
		for _, f := range d.of(who, x.what) {
			objects = append(objects, display.ASCII(f.Object))
		}
		if len(objects) > 0 {
			parts = append(parts, x.word+" "+strings.Join(objects, ", "))
		}
	}
	if len(d.of(who, outside)) > 0 {
		parts = append(parts, "runs with all rights of waldo's user")
	}
	if len(parts) == 0 {
		return "nothing outside of its sandbox."
	}
	return subject + " " + strings.Join(parts, "; ") + "."
}

// servers returns what each server can do if it is compromised.
func (d *document) servers() {
	if len(d.cfg.Servers) == 0 {
		return
	}
	d.line("")
	d.line("## A compromised server")
	d.line("")
	d.line("| server | it can | it cannot |")
	d.line("|---|---|---|")
	for _, name := range slices.Sorted(maps.Keys(d.cfg.Servers)) {
		s := d.cfg.Servers[name]
		can := strings.TrimPrefix(d.radius(contract.Contract{Transport: contract.MCP, Server: name}), "the server ")
		cannot := "read other files, reach other hosts, see other secrets"
		switch {
		case s.Placement == "outside" && s.URL == "":
			cannot = "be held: it runs outside of every sandbox"
		case s.URL != "":
			can, cannot = "lie in its results, and keep what it is sent", "reach this machine"
		}
		d.line("| %s (%s) | %s | %s |", cell(name), place(s.At), cell(can), cannot)
	}
}

// tools lists every contract.
func (d *document) tools() {
	d.line("")
	d.line("## Capabilities")
	d.line("")
	d.line("| capability | danger | question | blast radius | line |")
	d.line("|---|--:|---|---|---|")
	for _, c := range d.cfg.Contracts {
		if c.Denied {
			d.line("| %s | | denied | | %s |", cell(c.Pattern), place(c.At))
			continue
		}
		r := c.Resolve(c.Pattern, d.cfg)
		d.line("| %s | %d | %s | %s | %s |", cell(c.Pattern), r.Danger, d.question(c.Pattern), cell(d.radius(r)), place(c.At))
	}
}

// table is who reaches what, with which secrets.
func (d *document) table() {
	d.line("")
	d.line("## Who reaches what")
	d.line("")
	d.line("| who | reads | changes | reaches | with the secrets |")
	d.line("|---|---|---|---|---|")
	for _, who := range d.subjects() {
		var columns []string
		for _, what := range [][]string{{reads, queries}, {writes}, {connects, outside}, {holds}} {
			var objects []string
			for _, f := range d.of(who, what...) {
				object := f.Object
				switch f.What {
				case outside:
					object = "this machine"
				case holds:
					object = d.secret(f)
				}
				objects = append(objects, cell(object))
			}
			columns = append(columns, strings.Join(objects, ", "))
		}
		if strings.Join(columns, "") != "" {
			d.line("| %s | %s |", cell(who), strings.Join(columns, " | "))
		}
	}
}

// subjects returns everybody of the facts, sorted.
func (d *document) subjects() (all []string) {
	for _, f := range d.facts {
		all = append(all, f.Who)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// secret names a secret, and how far it goes.
func (d *document) secret(f Fact) string {
	if s, known := d.cfg.Secrets[f.Object]; known && s.Inject != nil {
		in := s.Inject
		return strings.TrimSpace(fmt.Sprintf("%s (in %s requests to %s %s alone)", f.Object, strings.Join(in.Methods, ", "),
			in.Host,
			strings.Join(in.Paths, ", ")))
	}
	if slices.ContainsFunc(d.of(f.Who, reveals), func(r Fact) bool { return r.Object == f.Object }) {
		return f.Object + " (sees it)"
	}
	return f.Object
}

// machine says which isolation levels this machine has.
func (d *document) machine(reports []sandbox.Report) {
	if reports == nil {
		return
	}
	d.line("")
	d.line("## This machine")
	d.line("")
	d.line("| isolation level | works here | missing | capabilities that ask for it |")
	d.line("|---|---|---|---|")
	for _, r := range reports {
		var missing, askers []string
		for _, a := range r.Abilities {
			if !a.OK {
				missing = append(missing, cell(a.Name))
			}
		}
		for _, c := range d.cfg.Contracts {
			if one := c.Resolve(c.Pattern, d.cfg); !c.Denied && one.Transport != contract.MCP &&
				one.Transport != contract.Direct &&
				one.Isolation == r.Driver {
				askers = append(askers, cell(c.Pattern))
			}
		}
		works := "yes"
		if !r.OK {
			works = "no: their calls are refused"
		}
		d.line("| %s | %s | %s | %s |", r.Driver, works, strings.Join(missing, ", "), strings.Join(askers, ", "))
	}
}

// Picture draws who reaches what, as SVG: capabilities on the left, servers in the middle, what they reach on the
// right. The lines of a capability that reaches something itself have a row of their own between the servers.
func Picture(cfg *contract.Config) string {
	const row, top, width = 26, 40, 900
	facts := Reach(cfg)
	var left, mid, right []string
	at := func(list *[]string, name string) int {
		if i := slices.Index(*list, name); i >= 0 {
			return i
		}
		*list = append(*list, name)
		return len(*list) - 1
	}
	type edge struct{ fromCol, from, toCol, to int }
	var edges []edge
	for _, c := range cfg.Contracts {
		if r := c.Resolve(c.Pattern, cfg); !c.Denied {
			l := at(&left, c.Pattern)
			if r.Transport == contract.MCP {
				edges = append(edges, edge{0, l, 1, at(&mid, "server "+r.Server)})
			}
		}
	}
	for _, f := range facts {
		switch f.What {
		case connects, reads, writes, holds, queries, outside:
		default:
			continue
		}
		object := f.What + " " + f.Object
		if i := slices.Index(left, f.Who); i >= 0 {
			edges = append(edges, edge{0, i, 1, at(&mid, through+f.Who)}, edge{1, at(&mid, through+f.Who), 2, at(&right, object)})
		} else {
			edges = append(edges, edge{1, at(&mid, f.Who), 2, at(&right, object)})
		}
	}
	height := top + row*max(len(left), len(mid), len(right), 1) + 20
	x := [3]int{20, 330, 600}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", width, height)
	b.WriteString(`<style>text{fill:#1f2328}path{stroke:#8c959f;fill:none}rect{fill:#f6f8fa;stroke:#d0d7de}` +
		`@media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#161b22;stroke:#30363d}}</style>` + "\n")
	for i, title := range []string{"capability", "server", "reach"} {
		fmt.Fprintf(&b, `<text x="%d" y="22" font-weight="bold">%s</text>`+"\n", x[i], title)
	}
	for _, e := range edges {
		x1, y1 := x[e.fromCol]+270, top+row*e.from+10
		if e.fromCol == 1 {
			x1 = x[1] + 230
		}
		x2, y2 := x[e.toCol], top+row*e.to+10
		fmt.Fprintf(&b, `<path d="M%d %d C%d %d %d %d %d %d"/>`+"\n", x1, y1, x1+30, y1, x2-30, y2, x2, y2)
	}
	for col, list := range [][]string{left, mid, right} {
		w := [3]int{270, 230, 280}[col]
		for i, name := range list {
			y := top + row*i
			if strings.HasPrefix(name, through) {
				fmt.Fprintf(&b, `<path d="M%d %d H%d"/>`+"\n", x[col], y+10, x[col]+w)
				continue
			}
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="21" rx="4"><title>%s</title></rect>`+"\n", x[col], y, w,
				html.EscapeString(display.ASCII(name)))
			fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", x[col]+8, y+15,
				html.EscapeString(shorten(display.ASCII(name), w/7-2)))
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// through begins the name of a row that only lines pass.
const through = "\x00"

func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n-3] + "..."
}
