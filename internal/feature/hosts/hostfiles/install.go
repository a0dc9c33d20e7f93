package hostfiles

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"waldo/internal/app"
	"waldo/internal/app/configfile"
	"waldo/internal/app/fault"
	"waldo/internal/config"
	"waldo/internal/feature/hosts/agenthosts"
	"waldo/internal/feature/hosts/hostimport"
	"waldo/internal/model/display"
	"waldo/internal/model/secret"
	"waldo/internal/protocol/strictjson"
)

// Install is one run of waldo install.
type Install struct {
	Config, State string // as the operator named them
	Host          *agenthosts.Host
	Gateway       agenthosts.Gateway
	Name          string
	Project, User bool
	Alone, Undo   bool
	Dry           bool
}

// Installed is its result in JSON.
type Installed struct {
	Host    string   `json:"host"`
	File    string   `json:"file"`
	Diff    []string `json:"diff"`
	Others  []string `json:"others"` // servers that go past waldo
	Removed []string `json:"removed"`
	Backup  string   `json:"backup,omitempty"`
	Written bool     `json:"written"`
	Note    string   `json:"note,omitempty"`
	Loads   string   `json:"loads,omitempty"` // the configuration that the entry loads in a folder without a trusted one
	Exact   bool     `json:"exact,omitempty"` // an undo that gave every byte back
	secrets []string // secrets of the file, which output must mask
}

// Do changes the host's file, or says what it would change.
func (n *Install) Do(ctx context.Context) (*Installed, error) {
	entry, err := n.entryValue()
	if err != nil {
		return nil, err
	}
	path, project, err := n.place()
	if err != nil {
		return nil, err
	}
	f, err := agenthosts.Open(path, project)
	if err != nil {
		return nil, &fault.Error{
			Usage: true, Err: err,
			Tip: hintOf(err, "waldo install "+n.Host.Name+" --print shows the entry, to be put in by hand"),
		}
	}
	state, err := app.StateDir(n.State)
	if err != nil {
		return nil, err
	}
	ledger := agenthosts.Ledger{Dir: filepath.Join(state, "hosts")}
	r := &Installed{
		Host: n.Host.Name, File: f.Path, Diff: []string{}, Others: []string{}, Removed: []string{},
		secrets: secretsIn(n.Host, f),
	}
	if n.Gateway.URL == "" {
		if r.Loads = n.loaded(); r.Loads != "" {
			if r.Loads, err = filepath.Abs(r.Loads); err != nil {
				return nil, err
			}
		}
	}
	if _, here := os.Stat("waldo.yaml"); here == nil && !n.Project && n.Gateway.URL == "" && n.loaded() == "" {
		r.Note = "the entry loads ./waldo.yaml in this folder alone; for every folder, move it to ~/.config/waldo, " +
			"or name it: --config ./waldo.yaml"
	}
	if n.Undo {
		return r, n.takeBack(ctx, ledger, f, r)
	}
	return r, n.putIn(ctx, ledger, f, project, entry, r)
}

// entryValue returns the entry that the host's file gets.
func (n *Install) entryValue() (agenthosts.Value, error) {
	if err := n.command(); err != nil {
		return agenthosts.Value{}, err
	}
	entry, err := n.Host.Entry(n.Gateway)
	if err != nil {
		return entry, fault.Usage("leave --url or --token-env out", "%s: %v", n.Host.Title, err)
	}
	return entry, nil
}

// Entry returns the entry as a person puts it in by hand.
func (n *Install) Entry() (string, error) {
	entry, err := n.entryValue()
	if err != nil {
		return "", err
	}
	return n.Host.Render(n.Name, entry), nil
}

// command returns the command that the host starts: this program, with its configuration and state directory.
func (n *Install) command() error {
	if n.Gateway.URL != "" {
		u, err := url.Parse(n.Gateway.URL)
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
			return fault.Usage("as in http://127.0.0.1:7676/mcp", "not the address of a waldo that listens")
		}
		if v := n.Gateway.TokenEnv; v != "" && !secret.Variable(v) {
			return fault.Usage("give the variable's name, never the token", "--token-env takes the name of a variable")
		}
		return nil
	}
	if n.Gateway.TokenEnv != "" {
		return fault.Usage("--url ADDRESS --token-env VARIABLE", "--token-env needs --url")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	n.Gateway.Command = []string{self}
	for _, flag := range []struct{ name, value, variable string }{
		{"--config", n.Config, "WALDO_CONFIG"}, {"--state", n.State, "WALDO_STATE"},
	} {
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
		n.Gateway.Command = append(n.Gateway.Command, flag.name, abs)
	}
	n.Gateway.Command = append(n.Gateway.Command, "serve", "--stdio")
	return nil
}

// own returns the configuration of the project whose file is changed, which loads only as trusted. It returns "" for
// the user's own file: each folder then loads its own configuration, or the user's.
func (n *Install) own() (file, flag string) {
	if _, err := os.Stat("waldo.yaml"); n.Project && err == nil {
		return "waldo.yaml", "--trusted-config"
	}
	return "", "--config"
}

// loaded returns the configuration that the written entry loads in every folder, or "".
func (n *Install) loaded() string {
	if file := cmp.Or(n.Config, os.Getenv("WALDO_CONFIG")); file != "" {
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
func (n *Install) lost(f *agenthosts.File) (map[string]string, error) {
	cfg, file := config.Default(), n.loaded()
	where := "there is no configuration that the entry loads in every folder"
	if file != "" {
		var err error
		if cfg, err = config.Load(file); err != nil {
			return nil, &fault.Error{Usage: true, Err: err, Tip: "fix it first: waldo check " + file}
		}
		where = "it is not in " + file
	}
	v, err := agenthosts.Parse(n.Host.Format, f.Path, f.Text)
	if err != nil {
		return nil, &fault.Error{Usage: true, Err: err}
	}
	base, err := filepath.Abs(agenthosts.Base(f.Path))
	if err != nil {
		return nil, err
	}
	home, _ := os.UserHomeDir()
	servers, _ := n.Host.Read(f.Path, v, "")
	whole, left := agenthosts.Whole(servers)
	out := map[string]string{}
	for _, s := range left {
		out[s.Name] = "waldo cannot read it"
	}
	planned := hostimport.Plan(n.Host, f.Path, whole, hostimport.Options{Workspace: base, Home: home}, map[string]bool{})
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
func (n *Install) place() (path, project string, err error) {
	if n.Project {
		dir, err := os.Getwd()
		if err != nil {
			return "", "", err
		}
		if path = n.Host.Project(dir); path == "" {
			return "", "", fault.Usage("waldo install "+n.Host.Name, "%s has no file for a project", n.Host.Title)
		}
		return path, dir, nil
	}
	env, err := agenthosts.Here()
	if err != nil {
		return "", "", err
	}
	return n.Host.User(env), "", nil
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

func (r *Installed) diff(before, after []byte) {
	for _, line := range agenthosts.Diff(before, after) {
		for _, s := range r.secrets {
			line = strings.ReplaceAll(line, s, "[secret]")
		}
		r.Diff = append(r.Diff, line)
	}
}

// putIn writes the entry, and removes the other servers on request.
func (n *Install) putIn(
	ctx context.Context, ledger agenthosts.Ledger, f *agenthosts.File, project string, entry agenthosts.Value, r *Installed,
) error {
	there, err := n.Host.Servers(f.Path, f.Text)
	if err != nil {
		return &fault.Error{Usage: true, Err: err}
	}
	text, err := n.Host.Put(f.Path, f.Text, n.Name, entry)
	if err != nil {
		return &fault.Error{Usage: true, Err: err}
	}
	var lost map[string]string
	if n.Alone && len(there) > 0 {
		if lost, err = n.lost(f); err != nil {
			return err
		}
	}
	var refused []string
	for _, m := range there {
		switch {
		case m.Name == n.Name || n.Host.Own(m):
		case lost[m.Name] != "":
			refused = append(refused, fmt.Sprintf("server %s would be lost: %s", display.Shell(m.Name), lost[m.Name]))
		case n.Alone:
			r.Removed = append(r.Removed, m.Name)
			if text, err = n.Host.Take(f.Path, text, m.Name); err != nil {
				return &fault.Error{Usage: true, Err: err}
			}
		default:
			r.Others = append(r.Others, m.Name)
		}
	}
	if len(refused) > 0 {
		return &fault.Error{Usage: true, Text: strings.Join(refused, "\n"), Tip: "waldo import --from " + n.Host.Name +
			" adds those that can be; write the others under servers yourself. If another server there takes the place of " +
			"one, take that one out of " + f.Path}
	}
	r.diff(f.Text, text)
	if len(r.Diff) == 0 || n.Dry {
		return nil
	}
	c := agenthosts.Change{
		Path: f.Path, Project: project, Host: n.Host.Name, Server: n.Name, At: time.Now().UTC(), Existed: f.Exists,
		Before: f.Text, Removed: r.Removed,
	}
	if err := app.RecordChange(ctx, n.State, "install", f.Path, strictjson.Digest(text)); err != nil {
		return err
	}
	if r.Backup, err = ledger.Keep(c, text); err != nil {
		return err
	}
	if err := f.Replace(text); err != nil {
		return &fault.Error{Err: err}
	}
	r.Written = true
	return nil
}

// takeBack undoes the last change of the file.
func (n *Install) takeBack(
	ctx context.Context, ledger agenthosts.Ledger, f *agenthosts.File, r *Installed,
) error {
	c, err := ledger.Last(f.Path)
	if err != nil {
		return err
	}
	if c == nil {
		return fault.Usage("waldo install "+n.Host.Name+" --print shows the entry, to be taken out by hand",
			"waldo has not changed %s, or it was undone", f.Path)
	}
	text, exact, err := c.Undone(n.Host, f.Text)
	if err != nil {
		return &fault.Error{Usage: true, Err: err, Tip: "the text before the change is in " + c.File()}
	}
	r.Exact = exact
	r.secrets = append(r.secrets, secretsIn(n.Host, &agenthosts.File{Path: f.Path, Text: text})...)
	r.diff(f.Text, text)
	if n.Dry {
		return nil
	}
	if err := app.RecordChange(ctx, n.State, "install", f.Path, strictjson.Digest(text)); err != nil {
		return err
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
