package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/internal/adopt"
	"waldo/internal/contract"
	"waldo/internal/hosts"
	"waldo/internal/policy"
)

func newImport(g *global) *cobra.Command {
	m := &importing{g: g}
	c := &cobra.Command{
		Use: "import FILE | --from HOST", Short: "Read an agent host's MCP servers and write them, tight, into waldo.yaml", Args: cobra.MaximumNArgs(1),
		Long: "Shows the exact command of each server, moves secrets that stand in the host's file into waldo's own store, and adds the servers\n" +
			"to waldo.yaml with no network, no files and no tools until you name them. The host's file is not changed. Exit status 0: read,\n" +
			"what is held back included; 1: read, but for entries that are no servers; 2: the file is not one that waldo can read.\n\nHosts: " + hostNames() + ".",
		Example: "  waldo import --from claude --dry-run\n  waldo import .mcp.json\n  waldo import ~/.codex/config.toml --only github",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && m.from == "" {
				return usage("waldo import .mcp.json, or waldo import --from claude", "name a file or a host")
			}
			return m.run(c, args)
		},
	}
	c.Flags().StringVar(&m.from, "from", "", "the `HOST` whose files to read, or, with FILE, whose form it has")
	c.Flags().StringVar(&m.to, "out", "", "the `FILE` to add to (default: that of --config or $WALDO_CONFIG, else ./waldo.yaml)")
	c.Flags().StringSliceVar(&m.only, "only", nil, "import the server of this `NAME` alone; may be repeated")
	c.Flags().BoolVarP(&m.dry, "dry-run", "n", false, "show what would be done and do nothing")
	_ = c.RegisterFlagCompletionFunc("from", completeHosts)
	return c
}

func hostNames() string {
	var names []string
	for _, h := range hosts.All() {
		names = append(names, h.Name)
	}
	return strings.Join(names, ", ")
}

func completeHosts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return strings.Split(hostNames(), ", "), cobra.ShellCompDirectiveNoFileComp
}

func findHost(name string) (*hosts.Host, error) {
	h, ok := hosts.Find(name)
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
	Files   []string       `json:"files"`
	Target  string         `json:"target"`
	Servers []adopt.Server `json:"servers"`
	Left    []leftServer   `json:"left"` // what is no server that waldo can read
	Diff    []string       `json:"diff"`
	Backup  string         `json:"backup,omitempty"`
	Written bool           `json:"written"`
	host    *hosts.Host    // of the first file
}

// leftServer is an entry of a host's file that cannot be read, and why.
type leftServer struct {
	Name string           `json:"name"` // as the host has it
	Why  []*hosts.Problem `json:"why"`
}

// unreadable says what cannot be read of a host's file.
func unreadable(code int, problems []*hosts.Problem) error {
	all := make([]string, len(problems))
	for i, p := range problems {
		all[i] = p.Error()
	}
	return &exit{code: code, text: strings.Join(all, "\nwaldo: "), hint: problems[0].Do}
}

// left says what was left, once the others are taken over: exit code 2 where there are none.
func (r *imported) left() error {
	var problems []*hosts.Problem
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

// source is one file to read; host may be nil: told by the file.
type importSource struct {
	host          *hosts.Host
	path, project string
}

func (m *importing) run(c *cobra.Command, args []string) error {
	sources, err := m.sources(args)
	if err != nil {
		return err
	}
	project := ""
	if m.to == "" {
		if m.to = cmp.Or(m.g.config, os.Getenv("WALDO_CONFIG")); m.to == "" {
			if project, err = os.Getwd(); err != nil {
				return err
			}
			m.to = filepath.Join(project, "waldo.yaml")
		}
	}
	r := imported{Servers: []adopt.Server{}, Left: []leftServer{}, Diff: []string{}}
	taken := map[string]bool{}
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
	target, err := hosts.Open(m.to, project)
	if err != nil {
		return &exit{code: exitUsage, err: err, hint: hintOf(err, "name another file: --out FILE")}
	}
	r.Target = target.Path
	text, err := draft(target, &r)
	if err != nil {
		return err
	}
	r.Diff = append(r.Diff, hosts.Diff(target.Text, text)...)
	if !m.g.json {
		tellImport(c.OutOrStdout(), &r)
	}
	if len(r.Diff) > 0 && !m.dry {
		if err := m.write(c.Context(), target, text, &r); err != nil {
			return err
		}
	}
	if m.g.json {
		return errors.Join(printJSON(c.OutOrStdout(), r), r.left())
	}
	tellWritten(c.OutOrStdout(), &r, m.dry)
	return r.left()
}

// sources are the files to read: the one that was named, or those of the host that are there.
func (m *importing) sources(args []string) ([]importSource, error) {
	var host *hosts.Host
	if m.from != "" {
		h, err := findHost(m.from)
		if err != nil {
			return nil, err
		}
		host = h
	}
	if len(args) == 1 {
		return []importSource{{host: host, path: args[0]}}, nil
	}
	env, err := hosts.Here()
	if err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	var out []importSource
	tried := []string{host.User(env)}
	if p := host.Project(dir); p != "" {
		tried = append([]string{p}, tried...)
	}
	for i, p := range tried {
		project := ""
		if len(tried) == 2 && i == 0 {
			project = dir
		}
		if _, err := os.Lstat(p); err == nil {
			out = append(out, importSource{host, p, project})
		}
	}
	if len(out) == 0 {
		return nil, usage("name the file: waldo import FILE --from "+host.Name, "%s has no file here: looked for %s", host.Title, strings.Join(tried, " and "))
	}
	return out, nil
}

// read adds the servers of one file.
func (m *importing) read(s importSource, r *imported, taken map[string]bool) error {
	f, err := hosts.Open(s.path, s.project)
	if err == nil && !f.Exists {
		err = fmt.Errorf("%s: there is no such file", hosts.Show(s.path))
	}
	if err != nil {
		return &exit{code: exitUsage, err: err, hint: hintOf(err, "name the host's file")}
	}
	format := hosts.FormatOf(s.path)
	if s.host != nil {
		format = s.host.Format
	}
	v, err := hosts.Parse(format, s.path, f.Text)
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
		host = hosts.Guess(abs, v)
	}
	all, problems := host.Read(s.path, v, dir)
	if len(problems) > 0 {
		return unreadable(exitUsage, problems)
	}
	servers, left := hosts.Whole(all)
	for _, one := range left {
		r.Left = append(r.Left, leftServer{one.Name, one.Problems})
	}
	base, err := filepath.Abs(hosts.Base(s.path))
	if err != nil {
		return err
	}
	home, _ := os.UserHomeDir()
	if r.host == nil {
		r.host = host
	}
	r.Files = append(r.Files, f.Path)
	r.Servers = append(r.Servers, adopt.Plan(host, s.path, servers, adopt.Options{Workspace: base, Home: home}, taken)...)
	return nil
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
		if !slices.ContainsFunc(r.Servers, func(s adopt.Server) bool { return s.Name == name || s.Was == name }) &&
			!slices.ContainsFunc(r.Left, func(l leftServer) bool { return l.Name == name }) {
			return usage("waldo import --dry-run lists them", "there is no server %q in %s", name, strings.Join(r.Files, ", "))
		}
	}
	if len(m.only) > 0 {
		r.Left = slices.DeleteFunc(r.Left, func(l leftServer) bool { return !slices.Contains(m.only, l.Name) })
		r.Servers = slices.DeleteFunc(r.Servers, func(s adopt.Server) bool { return !slices.Contains(m.only, s.Name) && !slices.Contains(m.only, s.Was) })
	}
	return nil
}

// draft returns the new text of waldo.yaml and says of each server that is not in it, why. What it
// returns has been read again: a text that check would refuse, or that means anything else, is none.
func draft(target *hosts.File, r *imported) ([]byte, error) {
	old, problems := contract.Parse(target.Path, target.Text)
	if len(problems) > 0 {
		return nil, &exit{code: exitUsage, err: problems, hint: "mend it first: waldo check " + target.Path}
	}
	var add []adopt.Server
	for i := range r.Servers {
		s := &r.Servers[i]
		there, ok := old.Servers[s.Name]
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
	text, err := adopt.Add(target.Text, add)
	if err != nil {
		return nil, &exit{code: exitUsage, text: target.Path, err: err, hint: "or write to another file: --out FILE"}
	}
	cfg, problems := contract.Parse(target.Path, text)
	if len(problems) == 0 {
		_, err = policy.New(cfg, checked(cfg))
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

// write puts the secrets away first, so that no line refers to one that is not there.
func (m *importing) write(ctx context.Context, target *hosts.File, text []byte, r *imported) error {
	for i := range r.Servers {
		s := &r.Servers[i]
		if s.Skipped != "" || s.Held != "" {
			continue
		}
		if err := s.Each(func(x *adopt.Secret) error { return m.move(ctx, x) }); err != nil {
			return err
		}
	}
	if target.Exists {
		state, err := openState(m.g)
		if err != nil {
			return err
		}
		if r.Backup, err = keepCopy(state, target); err != nil {
			return err
		}
	}
	if err := target.Replace(text); err != nil {
		return err
	}
	r.Written = true
	return nil
}

func (m *importing) move(ctx context.Context, s *adopt.Secret) error {
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

// keepCopy keeps a copy of a file in the state directory, where only the operator reads.
func keepCopy(state string, f *hosts.File) (string, error) {
	dir := filepath.Join(state, "backups")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	to := filepath.Join(dir, filepath.Base(f.Path)+"."+time.Now().UTC().Format("20060102T150405.000"))
	return to, writeAtomic(to, f.Text)
}

func tellImport(w io.Writer, r *imported) {
	p := painter(w)
	for _, s := range r.Servers {
		name := s.Name
		if s.Was != "" {
			name += ", there " + hosts.Show(s.Was)
		}
		fmt.Fprintf(w, "%s  %s\n", p.head(name), p.dim(hosts.Line(s.From)))
		fmt.Fprintf(w, "  runs    %s\n", s.Shown)
		for _, e := range s.Env {
			fmt.Fprintf(w, "  env     %s=%s\n", e.Name, hosts.Show(e.Value))
		}
		for _, x := range s.Secrets {
			fmt.Fprintf(w, "  secret  %s from %s%s\n", x.Variable, x.Ref, moves(x))
		}
		if s.Bearer != nil {
			fmt.Fprintf(w, "  token   from %s%s\n", s.Bearer.Ref, moves(*s.Bearer))
		}
		for _, h := range s.Headers {
			fmt.Fprintf(w, "  header  %s from %s%s\n", hosts.Show(h.Variable), h.Ref, moves(h))
		}
		for _, n := range s.Notes {
			fmt.Fprintf(w, "  %s    line %d: %s\n", p.warn("note"), n.At.Line, n.Text)
		}
		switch {
		case s.Skipped != "":
			fmt.Fprintf(w, "  %s %s\n", p.warn("skipped"), s.Skipped)
		case s.Held != "":
			fmt.Fprintf(w, "  %s    %s\n", p.bad("held"), s.Held)
		}
	}
	if len(r.Diff) > 0 {
		fmt.Fprintf(w, "\n%s\n", p.head(r.Target))
	}
	tellDiff(w, r.Diff)
}

func moves(x adopt.Secret) string {
	if x.Literal.IsZero() {
		return ""
	}
	return ", moved out of the file as it stands there"
}

func tellDiff(w io.Writer, diff []string) {
	p := painter(w)
	for _, line := range diff {
		if line[0] == '-' {
			fmt.Fprintln(w, p.bad(line))
		} else {
			fmt.Fprintln(w, p.good(line))
		}
	}
}

func tellWritten(w io.Writer, r *imported, dry bool) {
	in, literal := 0, false
	for _, s := range r.Servers {
		if s.Held == "" && s.Skipped == "" {
			in++
		}
		_ = s.Each(func(x *adopt.Secret) error { literal = literal || x.Moved; return nil })
	}
	if dry {
		fmt.Fprintf(w, "\n%s of %d would be imported; nothing was written\n", count(in, "server"), len(r.Servers)+len(r.Left))
		return
	}
	if !r.Written {
		fmt.Fprintf(w, "\nnothing to write\n")
		return
	}
	fmt.Fprintf(w, "\nwrote %s: %s of %d\n", r.Target, count(in, "server"), len(r.Servers)+len(r.Left))
	if r.Backup != "" {
		fmt.Fprintf(w, "as it was: %s\n", r.Backup)
	}
	fmt.Fprintf(w, "next: read it, name tools under capabilities, then: waldo check %s && waldo trust %s\n", r.Target, r.Target)
	if _, known := hosts.Find(r.host.Name); known {
		fmt.Fprintf(w, "then: waldo install %s --remove-others, so that %s has waldo alone\n", r.host.Name, r.host.Title)
	}
	if literal {
		fmt.Fprintf(w, "the secrets that were moved still stand in %s, too\n", strings.Join(r.Files, ", "))
	}
}
