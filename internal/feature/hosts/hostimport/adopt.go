// Package hostimport turns the servers of an agent host's file into lines of waldo.yaml: strict, with the exact
// command and without a secret. An entry that cannot be imported becomes a comment with the reason.
package hostimport

import (
	"fmt"
	"net/textproto"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"waldo/internal/config"
	"waldo/internal/detect/unseen"
	"waldo/internal/feature/hosts/agenthosts"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/secret"
	"waldo/internal/model/wellknown"
)

// Options say where things are.
type Options struct {
	Workspace string // value of ${workspaceFolder}
	Home      string
	Data      string   // ends the names of data folders, so that projects do not share them
	Outside   []string // servers of these names run in no sandbox, as the operator asked
}

// Server is one server, ready to be written.
type Server struct {
	Name    string            `json:"name"`
	Was     string            `json:"was,omitempty"` // the host's own name for it, where waldo's must differ
	From    string            `json:"from"`          // FILE:LINE of the host's file
	Command []string          `json:"command,omitempty"`
	Shown   string            `json:"shown"` // the exact command as a shell line, credentials apart
	URL     string            `json:"url,omitempty"`
	Env     []Pair            `json:"env,omitempty"`
	Secrets []Secret          `json:"secrets,omitempty"`
	Bearer  *Secret           `json:"bearer,omitempty"`
	Headers []Secret          `json:"headers,omitempty"`
	Notes   []agenthosts.Flag `json:"notes,omitempty"`
	Propose Proposal          `json:"proposed"`
	Beside  string            `json:"-"`                 // the folder of its script, which its sandbox does not see
	Target  string            `json:"target,omitempty"`  // the waldo.yaml that it goes to
	Waldo   bool              `json:"-"`                 // it is waldo itself
	Listed  bool              `json:"-"`                 // contracts of that file cover its tools already
	Outside bool              `json:"outside,omitempty"` // it runs in no sandbox
	Held    string            `json:"held,omitempty"`    // why it is written as a comment; empty: it is not
	Skipped string            `json:"skipped,omitempty"`
}

// Pair is a variable whose value is not secret.
type Pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Secret is a variable whose value waldo fetches when it starts the server.
type Secret struct {
	Variable string       `json:"variable,omitempty"`
	Ref      secret.Ref   `json:"ref"`
	Literal  secret.Value `json:"-"` // the value that stood in the host's file, to be put away
	Moved    bool         `json:"moved"`
}

// Plan works out what becomes of the servers of one file. Names are made to fit waldo's and to
// differ from those in taken.
func Plan(host *agenthosts.Host, file string, servers []agenthosts.Server, o Options, taken map[string]bool) []Server {
	var out []Server
	for _, s := range servers {
		p := &plan{o: o, in: s, out: Server{From: fmt.Sprintf("%s:%d", file, s.At.Line), Notes: s.Flags}}
		p.name(taken)
		if s.Disabled {
			p.out.Skipped = "it is switched off in " + host.Title
		}
		if len(s.URL) > 0 {
			p.remote()
		} else {
			p.local()
		}
		p.propose()
		p.judge()
		out = append(out, p.out)
	}
	return out
}

// judge holds what waldo.yaml does not take, by asking its parser, which shows no value.
func (p *plan) judge() {
	if p.out.Held != "" {
		return
	}
	text, err := Add(nil, []Server{p.out})
	if err != nil {
		p.hold("it cannot be written: %v", err)
		return
	}
	cfg, problems := config.Parse("waldo.yaml", text)
	switch {
	case len(problems) > 0 && len(p.out.Propose.Folders) > 0:
		p.out.Propose.Folders = nil
		p.note("folders", p.in.At, "no folder of its arguments is proposed: %s", problems[0].Text)
		p.judge()
	case len(problems) > 0:
		p.hold("waldo.yaml does not take it: %s", problems[0].Text)
	case !p.out.Same(cfg.Servers[p.out.Name]):
		p.hold("it would not be the same in waldo.yaml")
	}
}

// Each calls f for every secret of the server, until it fails.
func (s *Server) Each(f func(*Secret) error) error {
	all := []*Secret{}
	for _, list := range [][]Secret{s.Secrets, s.Headers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	if s.Bearer != nil {
		all = append(all, s.Bearer)
	}
	for _, x := range all {
		if err := f(x); err != nil {
			return err
		}
	}
	return nil
}

type plan struct {
	o   Options
	in  agenthosts.Server
	out Server
}

func (p *plan) note(code string, at agenthosts.Pos, format string, a ...any) {
	p.out.Notes = append(p.out.Notes, agenthosts.Flag{Code: code, Text: fmt.Sprintf(format, a...), At: at})
}

// hold keeps a server out for a reason; the first reason counts.
func (p *plan) hold(format string, a ...any) {
	if p.out.Held == "" {
		p.out.Held = fmt.Sprintf(format, a...)
	}
}

var notName = lazy(`[^A-Za-z0-9_-]+`)

// name makes a name that waldo.yaml takes: letters, digits, - and _, a letter first, no "__".
func (p *plan) name(taken map[string]bool) {
	n := strings.Trim(notName().ReplaceAllString(p.in.Name, "-"), "-_")
	for strings.Contains(n, "__") {
		n = strings.ReplaceAll(n, "__", "_")
	}
	if n == "" || n[0] < 'A' {
		n = strings.TrimRight("server-"+n, "-")
	}
	n = n[:min(len(n), 50)]
	base := n
	for i := 2; taken[n]; i++ {
		n = fmt.Sprintf("%s-%d", base, i)
	}
	taken[n] = true
	p.out.Name = n
	if n != p.in.Name {
		p.out.Was = p.in.Name
	}
}

// local plans a server that is a program.
func (p *plan) local() {
	var shown []string
	for i, w := range p.in.Command {
		s, ok := w.Literal(p.o.Workspace, p.o.Home)
		if !ok {
			p.hold("its command holds %s, which waldo does not fill in: write what it stands for", display.Shell(w.Raw()))
			s = w.Raw()
		}
		before := ""
		if i > 0 {
			before = p.in.Command[i-1].Raw()
		}
		if clean, found := mask(before, s); i > 0 && found {
			p.hold("argument %d holds a credential, which everybody on this machine can read: give it to the server by a "+
				"variable, under secrets", i)
			s = clean
		}
		if strings.ContainsFunc(s, odd) {
			p.hold("its command holds a character that does not show")
		}
		if i == 0 && strings.TrimSpace(s) == "" {
			p.hold("its command is empty")
		}
		p.out.Command = append(p.out.Command, s)
		shown = append(shown, s)
	}
	p.inFull(shown)
	p.out.Shown = display.ShellAll(shown)
	if c := p.out.Command; len(c) > 1 && filepath.Base(c[0]) == "waldo" && slices.Contains(c[1:], "serve") {
		p.out.Skipped, p.out.Waldo = "it is waldo itself", true // as waldo install has written it
	}
	if dir, _ := p.in.Cwd.Literal(p.o.Workspace, p.o.Home); dir != "" {
		p.note("cwd", p.in.At, "its folder %s is not taken over: a sandbox starts in its workspace; name files in full",
			display.Shell(dir))
	}
	for _, s := range p.in.Env {
		p.variable(s)
	}
	for _, s := range p.in.PassEnv {
		p.pass(s)
	}
	p.advise()
}

// inFull writes the relative folders of a well-known server's arguments in full: a sandbox starts in its workspace.
func (p *plan) inFull(shown []string) {
	if row, known := wellknown.Find(p.out.Command); !known || !row.Folders || p.o.Workspace == "" {
		return
	}
	base := p.o.Workspace
	if dir, _ := p.in.Cwd.Literal(p.o.Workspace, p.o.Home); filepath.IsAbs(dir) {
		base = dir
	}
	for i, w := range p.out.Command {
		if i > 0 && (w == "." || w == ".." || strings.HasPrefix(w, "./") || strings.HasPrefix(w, "../")) {
			p.out.Command[i] = filepath.Join(base, w)
			shown[i] = p.out.Command[i]
			p.note("folder", p.in.At, "its folder %s is written in full: %s", display.Shell(w), display.Shell(shown[i]))
		}
	}
}

// advise names the abilities that a program lacks in its sandbox.
func (p *plan) advise() {
	c := append(slices.Clone(p.out.Command), "", "")
	switch program := filepath.Base(c[0]); {
	case slices.Contains(p.o.Outside, p.out.Name):
		p.out.Outside = true
		p.note("outside", p.in.At, "it runs in no sandbox, with all rights of waldo's user")
	case program == "npx", program == "uvx", program == "pipx" && c[1] == "run",
		program == "uv" && c[1] == "tool" && c[2] == "run":
		p.note("fetches", p.in.At, "its package is installed when you accept it: waldo lock --accept %s; "+
			"it runs from there, without fetching anything", p.out.Name)
	case slices.Contains([]string{"uv", "pipx", "bunx", "pnpx"}, program):
		p.note("fetches", p.in.At, "%s fetches its package, and the sandbox has no network: install it, "+
			"then name the installed file", program)
	case program == "docker", program == "podman":
		p.hold("%s cannot be reached from a sandbox: to run it outside of any, with all rights of its user: "+
			"waldo import --outside %s", program, p.out.Name)
	}
}

// odd reports a character that waldo.yaml does not take.
func odd(r rune) bool {
	return r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r == '\ufffd' || unseen.InFile(r) ||
		unicode.In(r, unicode.Cf, unicode.Co, unicode.Variation_Selector)
}

// variable plans one variable of the server's environment.
func (p *plan) variable(s agenthosts.Setting) {
	if !secret.Variable(s.Name) {
		p.hold("%s is not the name of a variable", display.Shell(s.Name))
		return
	}
	if slices.ContainsFunc(p.out.Env, func(x Pair) bool { return x.Name == s.Name }) {
		return
	}
	if v := s.Value.Sole(); v != nil {
		if ref, why := p.reference(s.Name, *v); why == "" {
			p.secret(s, ref, secret.Value{})
		} else if v.Var != agenthosts.Workspace && v.Var != agenthosts.Home {
			p.hold("%s is %s: %s", s.Name, display.Shell(v.Whole), why)
		}
		if v.Default != "" {
			p.note("default", s.At, "the default of %s is not taken over: the variable must be set", s.Name)
		}
		if v.Var != agenthosts.Workspace && v.Var != agenthosts.Home {
			return
		}
	}
	text, ok := s.Value.Literal(p.o.Workspace, p.o.Home)
	switch {
	case !ok:
		p.hold("%s mixes text and variables: let one variable hold the whole value", s.Name)
	case Credential(s.Name, text):
		p.secret(s, p.stored(s.Name), secret.NewValue(text))
	case strings.TrimSpace(text) == "":
		p.note("empty", s.At, "%s is empty and not taken over", s.Name)
	case strings.ContainsFunc(text, odd):
		p.hold("%s holds a character that does not show", s.Name)
	default:
		p.out.Env = append(p.out.Env, Pair{s.Name, text})
	}
}

// reference returns the source of a variable's value, or why it has none.
func (p *plan) reference(name string, v agenthosts.Part) (ref secret.Ref, why string) {
	switch v.Var {
	case agenthosts.FromEnv:
		ref = secret.Ref("env:" + v.Text)
	case agenthosts.Asked:
		ref = p.stored(name)
		p.note("asked", p.in.At, "%s was asked for by the host: store it with waldo secret set %s", name,
			strings.TrimPrefix(string(ref), "store:"))
	case agenthosts.InFile:
		path := v.Text
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			path = filepath.Join(p.o.Home, rest)
		} else if !filepath.IsAbs(path) {
			path = filepath.Join(p.o.Workspace, path)
		}
		ref = secret.Ref("file:" + path)
	default:
		return "", "only its host knows what that is"
	}
	if _, ok := ref.Place(); !ok {
		return "", "waldo fetches secrets from " + secret.Forms
	}
	return ref, ""
}

func (p *plan) stored(name string) secret.Ref {
	n := p.out.Name + "." + notName().ReplaceAllString(name, "-")
	return secret.Ref("store:" + n[:min(len(n), 63)])
}

func (p *plan) secret(s agenthosts.Setting, ref secret.Ref, literal secret.Value) {
	if slices.ContainsFunc(p.out.Secrets, func(x Secret) bool { return x.Variable == s.Name }) {
		return
	}
	p.out.Secrets = append(p.out.Secrets, Secret{Variable: s.Name, Ref: ref, Literal: literal})
}

// pass plans a variable that the host hands on from its own environment.
func (p *plan) pass(s agenthosts.Setting) {
	if !secret.Variable(s.Name) {
		p.hold("%s is not the name of a variable", display.Shell(s.Name))
		return
	}
	if slices.ContainsFunc(p.out.Env, func(x Pair) bool { return x.Name == s.Name }) {
		return
	}
	p.secret(s, secret.Ref("env:"+s.Name), secret.Value{})
}

// remote plans a server at an address.
func (p *plan) remote() {
	text, ok := p.in.URL.Literal(p.o.Workspace, p.o.Home)
	u, err := url.Parse(text)
	switch {
	case !ok:
		p.hold("its address holds %s, which waldo does not fill in", display.Shell(p.in.URL.Raw()))
		text = p.in.URL.Raw()
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.ContainsFunc(text, odd):
		p.hold("its address is not one that waldo reaches: https, or http on this machine")
	case u.User != nil || credentialQuery(u):
		p.hold("its address holds a credential: give it as a bearer token, under auth")
	}
	if clean, found := mask("", text); found || err == nil && (u.User != nil || credentialQuery(u)) {
		text = clean
		if u != nil && text != "" {
			text = u.Scheme + "://" + u.Hostname() + u.EscapedPath() + "?" + removed
		}
	}
	p.out.URL, p.out.Shown = text, display.Shell(text)
	switch p.in.Transport {
	case "", "http", "streamable_http", "streamable-http", "streamableHttp", "remote", "sse":
	default:
		p.hold("waldo does not speak its transport, %s", display.Shell(p.in.Transport))
	}
	if p.in.BearerEnv != "" {
		p.bearer(secret.Ref("env:"+p.in.BearerEnv), secret.Value{})
	}
	for _, h := range p.in.EnvHeader {
		if strings.EqualFold(h.Name, "Authorization") {
			p.hold("its Authorization header comes whole from %s: waldo adds the word Bearer itself",
				display.Shell(h.Value.Raw()))
			continue
		}
		p.out.Headers = append(p.out.Headers, Secret{Variable: h.Name, Ref: secret.Ref("env:" + h.Value.Raw())})
	}
	for _, h := range p.in.Headers {
		p.header(h)
	}
	if p.out.Bearer == nil && len(p.out.Headers) == 0 {
		p.note("login", p.in.At, "where it wants a login, write auth: {oauth: {}} and run waldo login %s", p.out.Name)
	}
}

// header plans one header. Its value is always treated as a secret, because headers authenticate the caller.
func (p *plan) header(h agenthosts.Setting) {
	if !strings.EqualFold(h.Name, "Authorization") {
		x := Secret{Variable: h.Name, Ref: p.stored(h.Name)}
		if v := h.Value.Sole(); v != nil {
			ref, why := p.reference(h.Name, *v)
			if x.Ref = ref; why != "" {
				p.hold("its header %s is %s: %s", display.Shell(h.Name), display.Shell(v.Whole), why)
			}
		} else if text, ok := h.Value.Literal("", ""); ok {
			x.Literal = secret.NewValue(text)
		} else {
			p.hold("its header %s mixes text and variables: let one variable hold the whole value", display.Shell(h.Name))
		}
		p.out.Headers = append(p.out.Headers, x)
		return
	}
	w := slices.Clone(h.Value)
	if len(w) == 0 || w[0].Var != agenthosts.Literal || len(w[0].Text) < 7 ||
		!strings.EqualFold(w[0].Text[:7], "Bearer ") {
		p.hold("its Authorization header is not a bearer token")
		return
	}
	if w[0].Text = strings.TrimSpace(w[0].Text[7:]); w[0].Text == "" {
		w = w[1:]
	}
	if v := w.Sole(); v != nil {
		ref, why := p.reference("AUTHORIZATION", *v)
		if why != "" {
			p.hold("its token is %s: %s", display.Shell(v.Whole), why)
			return
		}
		p.bearer(ref, secret.Value{})
		return
	}
	text, ok := w.Literal("", "")
	if !ok || text == "" {
		p.hold("its token mixes text and variables: let one variable hold the whole token")
		return
	}
	p.bearer(p.stored("AUTHORIZATION"), secret.NewValue(text))
}

func (p *plan) bearer(ref secret.Ref, literal secret.Value) {
	if _, ok := ref.Place(); !ok {
		p.hold("waldo cannot fetch its token from there")
		return
	}
	p.out.Bearer = &Secret{Ref: ref, Literal: literal}
}

// Same reports whether waldo.yaml has this server already, as it would be written.
func (s Server) Same(c contract.Server) bool {
	env, refs := map[string]string{}, map[string]secret.Ref{}
	for _, e := range s.Env {
		env[e.Name] = e.Value
	}
	for _, x := range s.Secrets {
		refs[x.Variable] = x.Ref
	}
	bearer := secret.Ref("")
	if s.Bearer != nil {
		bearer = s.Bearer.Ref
	}
	headers := map[string]secret.Ref{}
	for _, h := range s.Headers {
		headers[textproto.CanonicalMIMEHeaderKey(h.Variable)] = h.Ref
	}
	return slices.Equal(s.Command, c.Command) && (s.URL != "" || s.Outside == (c.Placement == "outside")) && s.URL == c.URL && bearer == c.Auth.Bearer &&
		equal(headers, c.Auth.Headers) && equal(env, c.Env) && equal(refs, c.Secrets)
}

func equal[V comparable](a, b map[string]V) bool {
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return len(a) == len(b)
}
