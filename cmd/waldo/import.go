package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/agenthosts"
	"waldo/internal/agenthosts/hostimport"
	"waldo/internal/app"
	"waldo/internal/app/configfile"
	"waldo/internal/app/trust"
	"waldo/internal/config"
	"waldo/internal/core/policy"
	"waldo/internal/frontend/terminal"
	"waldo/internal/model/display"
)

func newImport(g *global) *cobra.Command {
	m := &importing{g: g}
	c := &cobra.Command{
		Use: "import FILE | --from HOST", Short: "Read an agent host's MCP servers and write them, tight, into waldo.yaml", Args: cobra.MaximumNArgs(1),
		Long: "Shows the exact command of each server, moves secrets that stand in the host's file into waldo's own store, and adds the servers\n" +
			"to waldo.yaml: a host's user-wide ones to ~/.config/waldo/waldo.yaml, which holds in every folder, others to ./waldo.yaml.\n" +
			"Hosts, folders and contracts of well-known servers are proposed, each line marked so. For an unknown server a person\n" +
			"is asked for every tool. The host's file is not changed.\n" +
			"Exit status 0: read, also with servers held back; 1: some entries are not servers; 2: waldo cannot read the file.\n\nHosts: " + hostNames() + ".",
		Example: "  waldo import --from claude --dry-run\n  waldo import .mcp.json\n  waldo import ~/.codex/config.toml --only github",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && m.from == "" {
				return usage("waldo import .mcp.json, or waldo import --from claude", "name a file or a host")
			}
			return m.run(c, args)
		},
	}
	c.Flags().StringVar(&m.from, "from", "", "the `HOST` whose files to read, or, with FILE, whose form it has")
	c.Flags().StringVar(&m.to, "out", "", "the `FILE` to add to (default: that of --config or $WALDO_CONFIG, else as above)")
	c.Flags().StringSliceVar(&m.only, "only", nil, "import the server of this `NAME` alone; may be repeated")
	c.Flags().BoolVarP(&m.dry, "dry-run", "n", false, "show what would be done and do nothing")
	_ = c.RegisterFlagCompletionFunc("from", completeHosts)
	return c
}

func hostNames() string {
	var names []string
	for _, h := range agenthosts.All() {
		names = append(names, h.Name)
	}
	return strings.Join(names, ", ")
}

func completeHosts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return strings.Split(hostNames(), ", "), cobra.ShellCompDirectiveNoFileComp
}

func findHost(name string) (*agenthosts.Host, error) {
	h, ok := agenthosts.Find(name)
	if !ok {
		return nil, usage("one of "+hostNames(), "there is no host %q", name)
	}
	return h, nil
}

// importing is one run of waldo import, and its result in JSON.
type importing struct {
	g    *global
	from string
	to   string
	only []string
	dry  bool
}

type imported struct {
	Files   []string            `json:"files"`
	Servers []hostimport.Server `json:"servers"`
	Left    []leftServer        `json:"left"` // entries that waldo cannot read as servers
	Targets []*importTarget     `json:"targets"`
	Written bool                `json:"written"`
	Shown   []serverFiles       `json:"shown"`
	host    *agenthosts.Host    // of the first file
}

// importTarget is one waldo.yaml that servers are added to.
type importTarget struct {
	Path    string   `json:"path"`
	Diff    []string `json:"diff"`
	Backup  string   `json:"backup,omitempty"`
	User    bool     `json:"user"` // the user's own file, which needs no waldo trust
	project string   // its links are not followed; empty: a path of the operator
	file    *agenthosts.File
	text    []byte
}

// leftServer is an entry of a host's file that cannot be read, and why.
type leftServer struct {
	Name string                `json:"name"` // as the host has it
	Why  []*agenthosts.Problem `json:"why"`
}

// unreadable returns an error that lists the problems of a host's file.
func unreadable(code int, problems []*agenthosts.Problem) error {
	all := make([]string, len(problems))
	for i, p := range problems {
		all[i] = p.Error()
	}
	return &exit{code: code, text: strings.Join(all, "\nwaldo: "), hint: problems[0].Do}
}

// left returns the error about skipped entries, after the other servers were added. It has exit code 2 if no server
// was added.
func (r *imported) left() error {
	var problems []*agenthosts.Problem
	for _, l := range r.Left {
		problems = append(problems, l.Why...)
	}
	if len(problems) == 0 {
		return nil
	}
	if len(r.Servers) == 0 {
		return unreadable(exitUsage, problems)
	}
	return unreadable(exitProblems, problems)
}

// importSource is one file to read.
type importSource struct {
	host          *agenthosts.Host // nil: derived from the file
	path, project string
	user          bool // it is the user's own file of that host
}

func (m *importing) run(c *cobra.Command, args []string) error {
	sources, err := m.sources(args)
	if err != nil {
		return err
	}
	m.to = cmp.Or(m.to, m.g.config, os.Getenv("WALDO_CONFIG"))
	r := imported{Servers: []hostimport.Server{}, Left: []leftServer{}, Targets: []*importTarget{}}
	taken := map[string]map[string]bool{}
	for _, s := range sources {
		if err := m.read(s, &r, taken); err != nil {
			return err
		}
	}
	if err := m.choose(&r); err != nil {
		return err
	}
	if len(r.Servers) == 0 && len(r.Left) > 0 {
		return r.left()
	}
	if err := m.showImported(&r); err != nil {
		return err
	}
	for _, t := range r.Targets {
		if t.file, err = agenthosts.Open(t.Path, t.project); err != nil {
			return &exit{code: exitUsage, err: err, hint: hintOf(err, "name another file: --out FILE")}
		}
		if t.text, err = draft(t, &r); err != nil {
			return err
		}
		t.Diff = append([]string{}, agenthosts.Diff(t.file.Text, t.text)...)
	}
	if !m.g.json {
		tellImport(c.OutOrStdout(), &r)
	}
	for _, t := range r.Targets {
		if len(t.Diff) > 0 && !m.dry {
			if err := m.write(c.Context(), t, &r); err != nil {
				return err
			}
		}
	}
	if m.g.json {
		return errors.Join(printJSON(c.OutOrStdout(), r), r.left())
	}
	tellWritten(c.OutOrStdout(), &r, m.dry)
	return r.left()
}

// target is the waldo.yaml that a server of a source goes to: the user's own for a user-wide one.
func (m *importing) target(r *imported, userWide bool) (*importTarget, error) {
	t := &importTarget{Path: m.to}
	if m.to == "" {
		dir, err := os.Getwd()
		if err != nil {
			return nil, err
		}
		t.project, t.Path = dir, filepath.Join(dir, "waldo.yaml")
		if userWide {
			if t.Path, err = configfile.UserConfig(); err != nil {
				return nil, err
			}
			t.project, t.User = "", true
		}
	}
	for _, there := range r.Targets {
		if there.Path == t.Path {
			return there, nil
		}
	}
	r.Targets = append(r.Targets, t)
	return t, nil
}

// sources are the files to read: the one that was named, or those of the host that are there.
func (m *importing) sources(args []string) ([]importSource, error) {
	var host *agenthosts.Host
	if m.from != "" {
		h, err := findHost(m.from)
		if err != nil {
			return nil, err
		}
		host = h
	}
	env, err := agenthosts.Here()
	if err != nil {
		return nil, err
	}
	if len(args) == 1 {
		abs, err := filepath.Abs(args[0])
		own := slices.ContainsFunc(agenthosts.All(), func(h *agenthosts.Host) bool { return h.User(env) == abs })
		return []importSource{{host: host, path: args[0], user: own}}, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	out := []importSource{{host: host, path: host.User(env), user: true}}
	if p := host.Project(dir); p != "" && p != out[0].path {
		out = append([]importSource{{host: host, path: p, project: dir}}, out...)
	}
	tried := []string{}
	out = slices.DeleteFunc(out, func(s importSource) bool {
		tried = append(tried, s.path)
		_, err := os.Lstat(s.path)
		return err != nil
	})
	if len(out) == 0 {
		return nil, usage("name the file: waldo import FILE --from "+host.Name, "%s has no file here: looked for %s", host.Title, strings.Join(tried, " and "))
	}
	return out, nil
}

// read adds the servers of one file.
func (m *importing) read(s importSource, r *imported, taken map[string]map[string]bool) error {
	f, err := agenthosts.Open(s.path, s.project)
	if err == nil && !f.Exists {
		err = fmt.Errorf("%s: there is no such file", agenthosts.Show(s.path))
	}
	if err != nil {
		return &exit{code: exitUsage, err: err, hint: hintOf(err, "name the host's file")}
	}
	format := agenthosts.FormatOf(s.path)
	if s.host != nil {
		format = s.host.Format
	}
	v, err := agenthosts.Parse(format, s.path, f.Text)
	if err != nil {
		return &exit{code: exitUsage, err: err}
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	host := s.host
	if host == nil {
		abs, err := filepath.Abs(s.path)
		if err != nil {
			return err
		}
		host = agenthosts.Guess(abs, v)
	}
	all, problems := host.Read(s.path, v, dir)
	if len(problems) > 0 {
		return unreadable(exitUsage, problems)
	}
	servers, left := agenthosts.Whole(all)
	for _, one := range left {
		r.Left = append(r.Left, leftServer{one.Name, one.Problems})
	}
	base, err := filepath.Abs(agenthosts.Base(s.path))
	if err != nil {
		return err
	}
	home, _ := os.UserHomeDir()
	if r.host == nil {
		r.host = host
	}
	r.Files = append(r.Files, f.Path)
	for _, userWide := range []bool{true, false} {
		some := slices.DeleteFunc(slices.Clone(servers), func(x agenthosts.Server) bool { return (s.user && x.From == "") != userWide })
		if len(some) == 0 {
			continue
		}
		t, err := m.target(r, userWide)
		if err != nil {
			return err
		}
		if taken[t.Path] == nil {
			taken[t.Path] = map[string]bool{}
		}
		o := hostimport.Options{Workspace: base, Home: home}
		if !t.User {
			o.Data = dataOfFolder(filepath.Dir(t.Path))
		}
		for _, one := range hostimport.Plan(host, s.path, some, o, taken[t.Path]) {
			if one.Target = t.Path; t.User && one.Held == "" {
				one.Held = relativePath(one.Command)
			}
			r.Servers = append(r.Servers, one)
		}
	}
	return nil
}

// relativePath returns the word of a user-wide server's command that is a path relative to the host's folder, or "".
// Beside the user's configuration it would name another file.
func relativePath(command []string) string {
	for _, w := range command {
		script := slices.Contains([]string{".py", ".js", ".mjs", ".cjs", ".ts", ".sh"}, filepath.Ext(w))
		if strings.HasPrefix(w, "./") || strings.HasPrefix(w, "../") || script && !filepath.IsAbs(w) && !strings.HasPrefix(w, "-") {
			return fmt.Sprintf("%s is relative to the folder where the host starts: write the whole path", agenthosts.Show(w))
		}
	}
	return ""
}

// dataOfFolder returns the suffix of the data folders proposed for a project's servers.
func dataOfFolder(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return fmt.Sprintf("-%x", sha256.Sum256([]byte(dir)))[:9]
}

func hintOf(err error, otherwise string) string {
	if h := hinted(nil); errors.As(err, &h) && h.Hint() != "" {
		return h.Hint()
	}
	return otherwise
}

// choose keeps the servers that --only names.
func (m *importing) choose(r *imported) error {
	for _, name := range m.only {
		if !slices.ContainsFunc(r.Servers, func(s hostimport.Server) bool { return s.Name == name || s.Was == name }) &&
			!slices.ContainsFunc(r.Left, func(l leftServer) bool { return l.Name == name }) {
			return usage("waldo import --dry-run lists them", "there is no server %q in %s", name, strings.Join(r.Files, ", "))
		}
	}
	if len(m.only) > 0 {
		r.Left = slices.DeleteFunc(r.Left, func(l leftServer) bool { return !slices.Contains(m.only, l.Name) })
		r.Servers = slices.DeleteFunc(r.Servers, func(s hostimport.Server) bool {
			return !slices.Contains(m.only, s.Name) && !slices.Contains(m.only, s.Was)
		})
	}
	return nil
}

// draft returns the new text of waldo.yaml, and records why a server was left out. It parses the text again, and
// returns an error if that fails or has another meaning.
func draft(t *importTarget, r *imported) ([]byte, error) {
	target := t.file
	old, problems := config.Parse(target.Path, target.Text)
	if len(problems) > 0 {
		return nil, &exit{code: exitUsage, err: problems, hint: "fix it first: waldo check " + target.Path}
	}
	var add []hostimport.Server
	for i := range r.Servers {
		s := &r.Servers[i]
		if s.Target != t.Path {
			continue
		}
		there, ok := old.Servers[s.Name]
		s.Listed = hostimport.Covers(old, s.Name)
		switch {
		case s.Skipped != "":
		case ok && s.Held == "" && s.Same(there):
			s.Skipped = "it is there already"
		case s.Held != "" && s.Noted(target.Text):
			s.Skipped = "it is there already, as a comment"
		case ok:
			s.Skipped = fmt.Sprintf("%s has another server of that name, on line %d", filepath.Base(target.Path), there.At.Line)
		default:
			add = append(add, *s)
		}
	}
	if len(add) == 0 {
		return target.Text, nil
	}
	text, err := hostimport.Add(target.Text, add)
	if err != nil {
		return nil, &exit{code: exitUsage, text: target.Path, err: err, hint: "or write to another file: --out FILE"}
	}
	cfg, problems := config.Parse(target.Path, text)
	if len(problems) == 0 {
		_, err = policy.New(cfg, app.AnyMachine())
	} else {
		err = problems
	}
	for _, s := range add {
		if err == nil && s.Held == "" && !s.Same(cfg.Servers[s.Name]) {
			err = fmt.Errorf("server %s would not be what it was", s.Name)
		}
	}
	if err != nil {
		return nil, &exit{code: exitFailed, text: "the servers cannot be written down", err: err, hint: "import them one by one with --only, and write the one that fails by hand"}
	}
	return text, nil
}

// write stores the secrets first, so that every reference in the file resolves.
func (m *importing) write(ctx context.Context, t *importTarget, r *imported) error {
	for i := range r.Servers {
		s := &r.Servers[i]
		if s.Target != t.Path || s.Skipped != "" || s.Held != "" {
			continue
		}
		if err := s.Each(func(x *hostimport.Secret) error { return m.move(ctx, x) }); err != nil {
			return err
		}
	}
	if t.file.Exists {
		state, err := openState(m.g)
		if err != nil {
			return err
		}
		if t.Backup, err = keepCopy(state, t.file); err != nil {
			return err
		}
	} else if t.User {
		if err := os.MkdirAll(filepath.Dir(t.Path), 0o700); err != nil {
			return err
		}
	}
	if err := t.file.Replace(t.text); err != nil {
		return err
	}
	r.Written = true
	return nil
}

func (m *importing) move(ctx context.Context, s *hostimport.Secret) error {
	if s.Literal.IsZero() {
		return nil
	}
	name := strings.TrimPrefix(string(s.Ref), "store:")
	if err := keepSecret(ctx, m.g, name, s.Literal); err != nil {
		return err
	}
	s.Moved = true
	return nil
}

// keepCopy saves a copy of a file in the state directory, which only the operator can read.
func keepCopy(state string, f *agenthosts.File) (string, error) {
	dir := filepath.Join(state, "backups")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	to := filepath.Join(dir, filepath.Base(f.Path)+"."+time.Now().UTC().Format("20060102T150405.000"))
	return to, trust.WriteAtomic(to, f.Text)
}

func tellImport(w io.Writer, r *imported) {
	p := terminal.Painter(w)
	for _, s := range r.Servers {
		name := s.Name
		if s.Was != "" {
			name += ", there " + agenthosts.Show(s.Was)
		}
		display.Fprintf(w, "%s  %s\n", p.Head(name), p.Dim(agenthosts.Line(s.From)))
		display.Fprintf(w, "  runs    %s\n", s.Shown)
		for _, f := range r.Shown {
			if f.Server == s.Name && s.Held == "" {
				display.Fprintf(w, "  shown   %s\n", listed(f.Files))
			}
		}
		for _, e := range s.Env {
			display.Fprintf(w, "  env     %s=%s\n", e.Name, agenthosts.Show(e.Value))
		}
		for _, x := range s.Secrets {
			display.Fprintf(w, "  secret  %s from %s%s\n", x.Variable, x.Ref, moves(x))
		}
		if s.Bearer != nil {
			display.Fprintf(w, "  token   from %s%s\n", s.Bearer.Ref, moves(*s.Bearer))
		}
		for _, h := range s.Headers {
			display.Fprintf(w, "  header  %s from %s%s\n", agenthosts.Show(h.Variable), h.Ref, moves(h))
		}
		for _, n := range s.Notes {
			display.Fprintf(w, "  %s    line %d: %s\n", p.Warn("note"), n.At.Line, n.Text)
		}
		switch {
		case s.Skipped != "":
			display.Fprintf(w, "  %s %s\n", p.Warn("skipped"), s.Skipped)
		case s.Held != "":
			display.Fprintf(w, "  %s    %s\n", p.Bad("held"), s.Held)
		}
	}
	for _, t := range r.Targets {
		if len(t.Diff) > 0 {
			display.Fprintf(w, "\n%s\n", p.Head(t.Path))
		}
		tellDiff(w, t.Diff)
	}
}

func moves(x hostimport.Secret) string {
	if x.Literal.IsZero() {
		return ""
	}
	return ", moved out of the file as it stands there"
}

func tellDiff(w io.Writer, diff []string) {
	p := terminal.Painter(w)
	for _, line := range diff {
		line = strings.ReplaceAll(line, "\t", "    ")
		if line[0] == '-' {
			display.Fprintf(w, "%s\n", p.Bad(line))
		} else {
			display.Fprintf(w, "%s\n", p.Good(line))
		}
	}
}

func tellWritten(w io.Writer, r *imported, dry bool) {
	in, literal := map[string]int{}, false
	all := 0
	for _, s := range r.Servers {
		if s.Held == "" && s.Skipped == "" {
			in[s.Target]++
			all++
		}
		_ = s.Each(func(x *hostimport.Secret) error { literal = literal || x.Moved; return nil })
	}
	if dry {
		display.Fprintf(w, "\n%s of %d would be imported; nothing was written\n", display.Count(all, "server"), len(r.Servers)+len(r.Left))
		return
	}
	if !r.Written {
		display.Fprintf(w, "\nnothing to write\n")
		return
	}
	for _, t := range r.Targets {
		if len(t.Diff) == 0 {
			continue
		}
		display.Fprintf(w, "\nwrote %s: %s of %d\n", t.Path, display.Count(in[t.Path], "server"), len(r.Servers)+len(r.Left))
		if t.Backup != "" {
			display.Fprintf(w, "as it was: %s\n", t.Backup)
		}
		next := "waldo check " + t.Path
		if !t.User {
			next += " && waldo trust " + t.Path
		}
		display.Fprintf(w, "next: read it, above all the lines that waldo proposed, then: %s\n", next)
	}
	if _, known := agenthosts.Find(r.host.Name); known {
		var project, user string // a project's own file still starts its servers, whatever stands in the user's
		for _, t := range r.Targets {
			if t.User {
				user = " " + r.host.Name + " --remove-others"
			} else {
				project = " " + r.host.Name + " --project --remove-others"
			}
		}
		for _, flags := range []string{user, project} {
			if flags != "" {
				display.Fprintf(w, "then: waldo install%s, so that %s has waldo alone\n", flags, r.host.Title)
			}
		}
	}
	if literal {
		display.Fprintf(w, "the secrets that were moved still stand in %s, too\n", strings.Join(r.Files, ", "))
	}
}
