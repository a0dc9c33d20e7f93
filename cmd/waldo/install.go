package main

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/agenthosts"
	"waldo/internal/agenthosts/hostimport"
	"waldo/internal/app/configfile"
	"waldo/internal/config"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
	"waldo/internal/model/secret"
)

func newInstall(g *global) *cobra.Command {
	n := &installing{g: g}
	c := &cobra.Command{
		Use: "install HOST", Short: "Write waldo into an agent host's configuration as its MCP server", Args: cobra.ExactArgs(1),
		Long: "Changes one entry of the host's file and nothing else: comments, order and unknown keys stay. The file is replaced whole, with\n" +
			"its mode and owner, and kept as it was under the state directory until --undo. A second time changes nothing.\n\nHosts: " + hostNames() + ".",
		Example:           "  waldo install claude --dry-run\n  waldo install codex --config ~/agents/waldo.yaml\n  waldo install cursor --project --remove-others\n  waldo install opencode --url http://127.0.0.1:7676/mcp --token-env WALDO_TOKEN\n  waldo install claude --undo",
		ValidArgsFunction: completeHosts,
		RunE: func(c *cobra.Command, args []string) error {
			host, err := findHost(args[0])
			if err != nil {
				return err
			}
			n.host = host
			return n.run(c)
		},
	}
	f := c.Flags()
	f.BoolVar(&n.project, "project", false, "the file in this folder, which a repository may share")
	f.BoolVar(&n.user, "user", false, "your own file; the default")
	f.StringVar(&n.name, "name", "waldo", "the `NAME` of the entry")
	f.StringVar(&n.gateway.URL, "url", "", "the `ADDRESS` of a waldo that listens, in place of starting one")
	f.StringVar(&n.gateway.TokenEnv, "token-env", "", "with --url, the `VARIABLE` of the host's environment that holds its token")
	f.BoolVar(&n.alone, "remove-others", false, "take the host's other servers out, which go past waldo; --undo brings them back")
	f.BoolVar(&n.undo, "undo", false, "take the last change back")
	f.BoolVar(&n.print, "print", false, "print the entry, to be put in by hand, and do nothing")
	f.BoolVarP(&n.dry, "dry-run", "n", false, "show what would be done and do nothing")
	c.MarkFlagsMutuallyExclusive("project", "user")
	c.MarkFlagsMutuallyExclusive("undo", "print", "remove-others")
	return c
}

// installing is one run of waldo install.
type installing struct {
	g             *global
	host          *agenthosts.Host
	gateway       agenthosts.Gateway
	name          string
	project, user bool
	alone, undo   bool
	print, dry    bool
}

// installed is its result in JSON.
type installed struct {
	Host    string   `json:"host"`
	File    string   `json:"file"`
	Diff    []string `json:"diff"`
	Others  []string `json:"others"` // servers that go past waldo
	Removed []string `json:"removed"`
	Backup  string   `json:"backup,omitempty"`
	Written bool     `json:"written"`
	Note    string   `json:"note,omitempty"`
	Exact   bool     `json:"exact,omitempty"` // an undo that gave every byte back
	secrets []string // secrets of the file, which output must mask
}

func (n *installing) run(c *cobra.Command) error {
	if err := n.command(); err != nil {
		return err
	}
	entry, err := n.host.Entry(n.gateway)
	if err != nil {
		return usage("leave --url or --token-env out", "%s: %v", n.host.Title, err)
	}
	if n.print {
		_, err := io.WriteString(c.OutOrStdout(), n.host.Render(n.name, entry))
		return err
	}
	path, project, err := n.place()
	if err != nil {
		return err
	}
	f, err := agenthosts.Open(path, project)
	if err != nil {
		return &exit{code: exitUsage, err: err, hint: hintOf(err, "waldo install "+n.host.Name+" --print shows the entry, to be put in by hand")}
	}
	state, err := openState(n.g)
	if err != nil {
		return err
	}
	ledger := agenthosts.Ledger{Dir: filepath.Join(state, "hosts")}
	r := &installed{Host: n.host.Name, File: f.Path, Diff: []string{}, Others: []string{}, Removed: []string{}, secrets: secretsIn(n.host, f)}
	if _, here := os.Stat("waldo.yaml"); here == nil && !n.project && n.gateway.URL == "" && n.loaded() == "" {
		r.Note = "the entry loads ./waldo.yaml in this folder alone; for every folder, move it to ~/.config/waldo, or name it: --config ./waldo.yaml"
	}
	if n.undo {
		err = n.takeBack(ledger, f, r)
	} else {
		err = n.putIn(ledger, f, project, entry, r)
	}
	if err != nil {
		return err
	}
	if n.g.json {
		return printJSON(c.OutOrStdout(), r)
	}
	n.tell(c.OutOrStdout(), r)
	return nil
}

// command returns the command that the host starts: this program, with its configuration and state directory.
func (n *installing) command() error {
	if n.gateway.URL != "" {
		u, err := url.Parse(n.gateway.URL)
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
			return usage("as in http://127.0.0.1:7676/mcp", "not the address of a waldo that listens")
		}
		if v := n.gateway.TokenEnv; v != "" && !secret.Variable(v) {
			return usage("give the variable's name, never the token", "--token-env takes the name of a variable")
		}
		return nil
	}
	if n.gateway.TokenEnv != "" {
		return usage("--url ADDRESS --token-env VARIABLE", "--token-env needs --url")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	n.gateway.Command = []string{self}
	for _, flag := range []struct{ name, value, variable string }{{"--config", n.g.config, "WALDO_CONFIG"}, {"--state", n.g.state, "WALDO_STATE"}} {
		value := cmp.Or(flag.value, os.Getenv(flag.variable)) // the host has a different environment
		if flag.name == "--config" && value == "" {
			value, flag.name = n.own()
		}
		if value == "" {
			continue
		}
		abs, err := filepath.Abs(value)
		if err != nil {
			return err
		}
		n.gateway.Command = append(n.gateway.Command, flag.name, abs)
	}
	n.gateway.Command = append(n.gateway.Command, "serve", "--stdio")
	return nil
}

// own returns the configuration of the project whose file is changed, which loads only as trusted. It returns "" for
// the user's own file: each folder then loads its own configuration, or the user's.
func (n *installing) own() (file, flag string) {
	if _, err := os.Stat("waldo.yaml"); n.project && err == nil {
		return "waldo.yaml", "--trusted-config"
	}
	return "", "--config"
}

// loaded returns the configuration that the written entry loads in every folder, or "".
func (n *installing) loaded() string {
	if file := cmp.Or(n.g.config, os.Getenv("WALDO_CONFIG")); file != "" {
		return file
	}
	if file, _ := n.own(); file != "" {
		return file
	}
	if file, err := configfile.UserConfig(); err == nil {
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	return ""
}

// lost returns the host's servers that the entry's configuration lacks, with reasons.
func (n *installing) lost(f *agenthosts.File) (map[string]string, error) {
	cfg, file := config.Default(), n.loaded()
	where := "there is no configuration that the entry loads in every folder"
	if file != "" {
		var err error
		if cfg, err = config.Load(file); err != nil {
			return nil, &exit{code: exitUsage, err: err, hint: "fix it first: waldo check " + file}
		}
		where = "it is not in " + file
	}
	v, err := agenthosts.Parse(n.host.Format, f.Path, f.Text)
	if err != nil {
		return nil, &exit{code: exitUsage, err: err}
	}
	base, err := filepath.Abs(agenthosts.Base(f.Path))
	if err != nil {
		return nil, err
	}
	home, _ := os.UserHomeDir()
	servers, _ := n.host.Read(f.Path, v, "")
	whole, left := agenthosts.Whole(servers)
	out := map[string]string{}
	for _, s := range left {
		out[s.Name] = "waldo cannot read it"
	}
	planned := hostimport.Plan(n.host, f.Path, whole, hostimport.Options{Workspace: base, Home: home}, map[string]bool{})
	for i, p := range planned {
		there, ok := cfg.Servers[p.Name]
		switch {
		case p.Waldo || ok && p.Like(there):
		case ok:
			out[whole[i].Name] = fmt.Sprintf("%s has another server of that name, on line %d", file, there.At.Line)
		case p.Held != "":
			out[whole[i].Name] = "it is held back: " + p.Held
		default:
			out[whole[i].Name] = where
		}
	}
	return out, nil
}

// place returns the file to change, and the project that must contain it.
func (n *installing) place() (path, project string, err error) {
	if n.project {
		dir, err := os.Getwd()
		if err != nil {
			return "", "", err
		}
		if path = n.host.Project(dir); path == "" {
			return "", "", usage("waldo install "+n.host.Name, "%s has no file for a project", n.host.Title)
		}
		return path, dir, nil
	}
	env, err := agenthosts.Here()
	if err != nil {
		return "", "", err
	}
	return n.host.User(env), "", nil
}

// secretsIn returns the literal secrets of a host's file, so that shown lines can mask them.
func secretsIn(h *agenthosts.Host, f *agenthosts.File) []string {
	v, err := agenthosts.Parse(h.Format, f.Path, f.Text)
	if err != nil {
		return nil
	}
	servers, _ := h.Read(f.Path, v, "")
	var out []string
	for _, s := range servers {
		for _, e := range append(append(s.Env, s.Headers...), agenthosts.Setting{Name: "url", Value: s.URL}) {
			if raw := e.Value.Raw(); raw != "" && hostimport.Credential(e.Name, raw) {
				out = append(out, strings.Trim(agenthosts.Quote(raw), `"`), raw)
			}
		}
		for i, w := range s.Command {
			before := ""
			if i > 0 {
				before = s.Command[i-1].Raw()
			}
			if hostimport.Mask(before, w.Raw()) != w.Raw() {
				out = append(out, strings.Trim(agenthosts.Quote(w.Raw()), `"`), w.Raw())
			}
		}
	}
	return out
}

func (r *installed) diff(before, after []byte) {
	for _, line := range agenthosts.Diff(before, after) {
		for _, s := range r.secrets {
			line = strings.ReplaceAll(line, s, "[secret]")
		}
		r.Diff = append(r.Diff, line)
	}
}

// putIn writes the entry, and removes the other servers on request.
func (n *installing) putIn(ledger agenthosts.Ledger, f *agenthosts.File, project string, entry agenthosts.Value, r *installed) error {
	there, err := n.host.Servers(f.Path, f.Text)
	if err != nil {
		return &exit{code: exitUsage, err: err}
	}
	text, err := n.host.Put(f.Path, f.Text, n.name, entry)
	if err != nil {
		return &exit{code: exitUsage, err: err}
	}
	var lost map[string]string
	if n.alone && len(there) > 0 {
		if lost, err = n.lost(f); err != nil {
			return err
		}
	}
	var refused []string
	for _, m := range there {
		switch {
		case m.Name == n.name || n.host.Own(m):
		case lost[m.Name] != "":
			refused = append(refused, fmt.Sprintf("server %s would be lost: %s", agenthosts.Show(m.Name), lost[m.Name]))
		case n.alone:
			r.Removed = append(r.Removed, m.Name)
			if text, err = n.host.Take(f.Path, text, m.Name); err != nil {
				return &exit{code: exitUsage, err: err}
			}
		default:
			r.Others = append(r.Others, m.Name)
		}
	}
	if len(refused) > 0 {
		return &exit{code: exitUsage, text: strings.Join(refused, "\nwaldo: "), hint: "waldo import --from " + n.host.Name +
			" adds those that can be; write the others under servers yourself, or take them out of " + f.Path}
	}
	r.diff(f.Text, text)
	if len(r.Diff) == 0 || n.dry {
		return nil
	}
	c := agenthosts.Change{Path: f.Path, Project: project, Host: n.host.Name, Server: n.name, At: time.Now().UTC(), Existed: f.Exists, Before: f.Text, Removed: r.Removed}
	if r.Backup, err = ledger.Keep(c, text); err != nil {
		return err
	}
	if err := f.Replace(text); err != nil {
		return &exit{code: exitFailed, err: err}
	}
	r.Written = true
	return nil
}

// takeBack undoes the last change of the file.
func (n *installing) takeBack(ledger agenthosts.Ledger, f *agenthosts.File, r *installed) error {
	c, err := ledger.Last(f.Path)
	if err != nil {
		return err
	}
	if c == nil {
		return usage("waldo install "+n.host.Name+" --print shows the entry, to be taken out by hand", "waldo has not changed %s, or it was undone", f.Path)
	}
	text, exact, err := c.Undone(n.host, f.Text)
	if err != nil {
		return &exit{code: exitUsage, err: err, hint: "the text before the change is in " + c.File()}
	}
	r.Exact = exact
	r.secrets = append(r.secrets, secretsIn(n.host, &agenthosts.File{Path: f.Path, Text: text})...)
	r.diff(f.Text, text)
	if n.dry {
		return nil
	}
	switch {
	case exact && !c.Existed:
		err = f.Remove()
	case !f.Exists && len(text) == 0: // deleted meanwhile, without text to restore
	case len(r.Diff) > 0 || !exact:
		err = f.Replace(text)
	}
	if err != nil {
		return err
	}
	r.Written = true
	return ledger.Forget(c)
}

func (n *installing) tell(w io.Writer, r *installed) {
	p := terminal.Painter(w)
	display.Fprintf(w, "%s  %s\n", p.Head(n.host.Title), r.File)
	tellDiff(w, r.Diff)
	switch {
	case n.dry:
		display.Fprintf(w, "nothing was written\n")
	case n.undo && r.Exact:
		display.Fprintf(w, "taken back: every byte is as it was\n")
	case n.undo:
		display.Fprintf(w, "taken back; what else has changed since was left alone\n")
	case r.Written:
		display.Fprintf(w, "written; to take it back: waldo install %s%s --undo\n", n.host.Name, map[bool]string{true: " --project"}[n.project])
		display.Fprintf(w, "next: %s\n", n.host.Restart)
	default:
		display.Fprintf(w, "it is there already; nothing was written\n")
	}
	if r.Note != "" && !n.undo {
		display.Fprintf(w, "%s %s\n", p.Warn("note:"), r.Note)
	}
	if len(r.Others) > 0 {
		shown := slices.Clone(r.Others)
		for i := range shown {
			shown[i] = agenthosts.Show(shown[i])
		}
		display.Fprintf(w, "%s this host also has %s, and waldo sees nothing of it\n", p.Warn("note:"), strings.Join(shown, ", "))
		display.Fprintf(w, "hint: waldo import --from %s, then waldo install %s --remove-others\n", n.host.Name, n.host.Name)
	}
}
