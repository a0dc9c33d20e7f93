// Package hostfiles changes files of agent hosts: it imports their servers into waldo.yaml, and installs waldo in them.
package hostfiles

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"waldo/internal/app"
	"waldo/internal/app/configfile"
	"waldo/internal/app/fault"
	"waldo/internal/app/secrets"
	"waldo/internal/cli"
	"waldo/internal/config"
	"waldo/internal/core/policy"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/feature/hosts/agenthosts"
	"waldo/internal/feature/hosts/hostimport"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/secret"
	"waldo/internal/pkginstall"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/storage/safefile"
)

// Import is one run of waldo import, and its result in JSON.
type Import struct {
	State   string // the state directory, as the operator named it
	From    string
	To      string
	Only    []string
	Outside []string // servers that run in no sandbox
	Dry     bool
}

type Imported struct {
	Files   []string            `json:"files"`
	Servers []hostimport.Server `json:"servers"`
	Left    []Left              `json:"left"` // entries that waldo cannot read as servers
	Targets []*Target           `json:"targets"`
	Written bool                `json:"written"`
	Shown   []cli.Shown         `json:"shown"`
	Host    *agenthosts.Host    `json:"-"` // of the first file
}

// Target is one waldo.yaml that servers are added to.
type Target struct {
	Path    string   `json:"path"`
	Diff    []string `json:"diff"`
	Backup  string   `json:"backup,omitempty"`
	User    bool     `json:"user"` // the user's own file, which needs no waldo trust
	project string   // its links are not followed; empty: a path of the operator
	file    *agenthosts.File
	text    []byte
}

// Left is an entry of a host's file that cannot be read, and why.
type Left struct {
	Name string                `json:"name"` // as the host has it
	Why  []*agenthosts.Problem `json:"why"`
}

// unreadable returns an error that lists the problems of a host's file.
func unreadable(usage bool, problems []*agenthosts.Problem) error {
	all := make([]string, len(problems))
	for i, p := range problems {
		all[i] = p.Error()
	}
	return &fault.Error{Usage: usage, Problems: !usage, Text: strings.Join(all, "\n"), Tip: problems[0].Do}
}

// Err returns the error about skipped entries, after the other servers were added. It has exit code 2 if no server
// was added.
func (r *Imported) Err() error {
	var problems []*agenthosts.Problem
	for _, l := range r.Left {
		problems = append(problems, l.Why...)
	}
	if len(problems) == 0 {
		return nil
	}
	if len(r.Servers) == 0 {
		return unreadable(true, problems)
	}
	return unreadable(false, problems)
}

// importSource is one file to read.
type importSource struct {
	host          *agenthosts.Host // nil: derived from the file
	path, project string
	user          bool // it is the user's own file of that host
}

// Plan reads the hosts' files and drafts the new text of each waldo.yaml. A result without a target has no server that
// waldo can read; its error is left.
func (m *Import) Plan(args []string) (*Imported, error) {
	sources, err := m.sources(args)
	if err != nil {
		return nil, err
	}
	r := &Imported{Servers: []hostimport.Server{}, Left: []Left{}, Targets: []*Target{}}
	taken := map[string]map[string]bool{}
	for _, s := range sources {
		if err := m.read(s, r, taken); err != nil {
			return nil, err
		}
	}
	if err := m.choose(r); err != nil {
		return nil, err
	}
	if len(r.Servers) == 0 && len(r.Left) > 0 {
		return nil, r.Err()
	}
	if err := m.showImported(r); err != nil {
		return nil, err
	}
	for _, t := range r.Targets {
		if t.file, err = agenthosts.Open(t.Path, t.project); err != nil {
			return nil, &fault.Error{Usage: true, Err: err, Tip: hintOf(err, "name another file: --out FILE")}
		}
		if t.text, err = draft(t, r); err != nil {
			return nil, err
		}
		t.Diff = append([]string{}, agenthosts.Diff(t.file.Text, t.text)...)
	}
	return r, nil
}

// WriteAll writes every target that changes.
func (m *Import) WriteAll(ctx context.Context, r *Imported) error {
	for _, t := range r.Targets {
		if len(t.Diff) == 0 {
			continue
		}
		if err := m.write(ctx, t, r); err != nil {
			return err
		}
	}
	return nil
}

// target is the waldo.yaml that a server of a source goes to: the user's own for a user-wide one.
func (m *Import) target(r *Imported, userWide bool) (*Target, error) {
	t := &Target{Path: m.To}
	if m.To == "" {
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
func (m *Import) sources(args []string) ([]importSource, error) {
	var host *agenthosts.Host
	if m.From != "" {
		h, err := Find(m.From)
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
		return nil, fault.Usage("name the file: waldo import FILE --from "+host.Name, "%s has no file here: looked for %s",
			host.Title, strings.Join(tried, " and "))
	}
	return out, nil
}

// read adds the servers of one file.
func (m *Import) read(s importSource, r *Imported, taken map[string]map[string]bool) error {
	f, err := agenthosts.Open(s.path, s.project)
	if err == nil && !f.Exists {
		err = fmt.Errorf("%s: no such file", display.Shell(s.path))
	}
	if err != nil {
		return &fault.Error{Usage: true, Err: err, Tip: hintOf(err, "name the host's file")}
	}
	format := agenthosts.FormatOf(s.path)
	if s.host != nil {
		format = s.host.Format
	}
	v, err := agenthosts.Parse(format, s.path, f.Text)
	if err != nil {
		return &fault.Error{Usage: true, Err: err}
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
		return unreadable(true, problems)
	}
	servers, left := agenthosts.Whole(all)
	for _, one := range left {
		r.Left = append(r.Left, Left{one.Name, one.Problems})
	}
	base, err := filepath.Abs(agenthosts.Base(s.path))
	if err != nil {
		return err
	}
	home, _ := os.UserHomeDir()
	if r.Host == nil {
		r.Host = host
	}
	r.Files = append(r.Files, f.Path)
	for _, userWide := range []bool{true, false} {
		some := slices.DeleteFunc(slices.Clone(servers), func(x agenthosts.Server) bool {
			return (s.user && x.From == "") != userWide
		})
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
		o := hostimport.Options{Workspace: base, Home: home, Outside: m.Outside}
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
		if strings.HasPrefix(w, "./") || strings.HasPrefix(w, "../") ||
			script && !filepath.IsAbs(w) && !strings.HasPrefix(w, "-") {
			return fmt.Sprintf("%s is relative to the folder where the host starts: write the whole path", display.Shell(w))
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
	if h := (interface{ Hint() string })(nil); errors.As(err, &h) && h.Hint() != "" {
		return h.Hint()
	}
	return otherwise
}

// choose keeps the servers that --only names.
func (m *Import) choose(r *Imported) error {
	for _, name := range m.Only {
		if !slices.ContainsFunc(r.Servers, func(s hostimport.Server) bool { return s.Name == name || s.Was == name }) &&
			!slices.ContainsFunc(r.Left, func(l Left) bool { return l.Name == name }) {
			return fault.Usage("waldo import --dry-run lists them", "unknown server %q in %s", name,
				strings.Join(r.Files, ", "))
		}
	}
	if len(m.Only) > 0 {
		r.Left = slices.DeleteFunc(r.Left, func(l Left) bool { return !slices.Contains(m.Only, l.Name) })
		r.Servers = slices.DeleteFunc(r.Servers, func(s hostimport.Server) bool {
			return !slices.Contains(m.Only, s.Name) && !slices.Contains(m.Only, s.Was)
		})
	}
	return nil
}

// draft returns the new text of waldo.yaml, and records why a server was left out. It parses the text again, and
// returns an error if that fails or has another meaning.
func draft(t *Target, r *Imported) ([]byte, error) {
	target := t.file
	old, problems := config.Parse(target.Path, target.Text)
	if len(problems) > 0 {
		return nil, &fault.Error{Usage: true, Err: problems, Tip: "fix it first: waldo check " + target.Path}
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
		return nil, &fault.Error{Usage: true, Text: target.Path, Err: err, Tip: "or write to another file: --out FILE"}
	}
	cfg, problems := config.Parse(target.Path, text)
	if len(problems) == 0 {
		_, err = policy.New(cfg, app.AnyMachine(nil)) // no call is decided
	} else {
		err = problems
	}
	for _, s := range add {
		if err == nil && s.Held == "" && !s.Same(cfg.Servers[s.Name]) {
			err = fmt.Errorf("server %s would not be what it was", s.Name)
		}
	}
	if err != nil {
		return nil, &fault.Error{
			Text: "the servers cannot be written down", Err: err,
			Tip: "import them one by one with --only, and write the one that fails by hand",
		}
	}
	return text, nil
}

// write stores the secrets first, so that every reference in the file resolves.
func (m *Import) write(ctx context.Context, t *Target, r *Imported) error {
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
		state, err := app.StateDir(m.State)
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
	if err := app.RecordChange(ctx, m.State, "import", t.Path, strictjson.Digest(t.text)); err != nil {
		return err
	}
	if err := t.file.Replace(t.text); err != nil {
		return err
	}
	r.Written = true
	return nil
}

func (m *Import) move(ctx context.Context, s *hostimport.Secret) error {
	if s.Literal.IsZero() {
		return nil
	}
	name := strings.TrimPrefix(string(s.Ref), "store:")
	if err := keepSecret(ctx, m.State, name, s.Literal); err != nil {
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
	return to, safefile.Replace(to, f.Text, 0o600)
}

// Names lists the hosts that waldo knows.
func Names() string {
	var names []string
	for _, h := range agenthosts.All() {
		names = append(names, h.Name)
	}
	return strings.Join(names, ", ")
}

func Find(name string) (*agenthosts.Host, error) {
	h, ok := agenthosts.Find(name)
	if !ok {
		return nil, fault.Usage("one of "+Names(), "unknown agent host %q", name)
	}
	return h, nil
}

// keepSecret puts a secret into the store under a name, which nothing else may have.
func keepSecret(ctx context.Context, stateFlag, name string, v secret.Value) error {
	state, err := app.StateDir(stateFlag)
	if err != nil {
		return err
	}
	s := secrets.Open(state)
	if s.Has(name) {
		old, err := s.Get(name)
		if err != nil {
			return err
		}
		if old.Same(v) {
			return nil
		}
		return fault.Usage("give it another name, or look with waldo secret list",
			"there is another secret named %s already; nothing was changed", name)
	}
	if !s.HasKey() {
		s.Keyring = nil // use a key file unless --key keyring is given
	}
	if err := app.RecordChange(ctx, stateFlag, "secret.set", name, ""); err != nil {
		return err
	}
	return s.Set(name, v)
}

// showImported lists the files that each imported server's sandbox will see. It holds back a server with a forbidden
// path.
func (m *Import) showImported(r *Imported) error {
	state, err := configfile.StateDir(m.State)
	if err != nil {
		return err
	}
	here := files.Here(state)
	r.Shown = []cli.Shown{}
	for i := range r.Servers {
		s := &r.Servers[i]
		if len(s.Command) == 0 || s.Held != "" || s.Skipped != "" {
			continue
		}
		_, packaged, _ := pkginstall.Parse(s.Command)
		_, shown, faults := here.Shown(plannedServer(*s), packaged)
		if slices.ContainsFunc(faults, func(f files.Fault) bool { return f.Refused }) && len(s.Propose.Folders) > 0 {
			s.Propose.Folders = nil // do not propose folders that cannot be mounted
			_, shown, faults = here.Shown(plannedServer(*s), packaged)
		}
		if len(shown) > 0 {
			r.Shown = append(r.Shown, cli.Shown{Server: s.Name, Files: shown, Target: s.Target})
		}
		s.Beside = besideScript(shown)
		for _, f := range faults {
			if f.Refused && s.Held == "" {
				s.Held = f.Text
				continue
			}
			if f.Missing {
				continue // it may be on another machine: waldo check says so
			}
			s.Notes = append(s.Notes, agenthosts.Flag{Code: "files", Text: f.Error(), At: agenthosts.Pos{Line: lineOf(*s)}})
		}
	}
	return nil
}

// besideScript returns the folder that a server's script needs where it has files beside it: of an installed npm
// package the folder that holds the outermost node_modules, because Node.js looks for other packages there; else the
// nearest folder above that looks like a project, else its own. Empty: the server has no script, or more is shown than that.
func besideScript(shown []files.Mount) string {
	if len(shown) != 1 || shown[0].Why != "script" {
		return ""
	}
	own := filepath.Dir(shown[0].Target)
	if project, _, in := strings.Cut(own+"/", "/node_modules/"); in && project != "" {
		return project
	}
	for dir, up := own, 0; up < 3 && dir != "/"; dir, up = filepath.Dir(dir), up+1 {
		for _, mark := range []string{"package.json", "node_modules", "pyproject.toml"} {
			if _, err := os.Lstat(filepath.Join(dir, mark)); err == nil {
				return dir
			}
		}
	}
	return own
}

// plannedServer is a server to import, as its waldo.yaml will have it.
func plannedServer(s hostimport.Server) contract.Server {
	return contract.Server{
		Name: s.Name, Command: s.Command, Mounts: s.Propose.Mounts(), At: contract.Position{File: s.Target},
	}
}

// lineOf returns the line of a server in the host's file.
func lineOf(s hostimport.Server) int {
	n := 0
	_, _ = fmt.Sscanf(s.From[strings.LastIndexByte(s.From, ':')+1:], "%d", &n)
	return n
}
