package agenthosts

import (
	"path/filepath"
	"strings"
	"waldo/internal/model/display"
)

// Server is one MCP server as a host's file has it. Nothing is resolved: variables stand in Parts.
type Server struct {
	Name      string
	At        Pos
	From      string // where it stands, where a file has more than one place
	Command   []Words
	Cwd       Words
	Env       []Setting
	PassEnv   []Setting // names of variables that the host hands on from its own environment
	URL       Words
	Headers   []Setting
	EnvHeader []Setting // header to the variable that holds it
	BearerEnv string    // the variable that holds a bearer token
	Transport string    // as written: stdio, http, sse, …
	Disabled  bool
	Flags     []Flag
	Problems  []*Problem // parts that could not be read; with one, this entry is incomplete
}

// Setting is a named text.
type Setting struct {
	Name  string
	Value Words
	At    Pos
}

// Flag is something about a server that a person should know before taking it over.
type Flag struct {
	Code string `json:"code"`
	Text string `json:"text"`
	At   Pos    `json:"at"`
}

// means says what a key of a server's entry is for.
type means uint8

const (
	unknown means = iota
	command
	args
	env
	passEnv
	cwd
	address
	headers
	envHeaders
	bearerEnv
	transport
	enabled
	disabled
	trust   // any value that is true disables the host's own approval
	allowed // tools that are not asked about
	chosen  // tools that are shown or hidden
	envFile
	sb    // the host's own sandbox
	quiet // known, and of no consequence here
)

// dialect is how a host spells a server and its variables.
type dialect struct {
	keys map[string]means
	vars syntax
}

// common are the keys that nearly every host reads.
var common = map[string]means{
	"command": command, "args": args, "env": env, "cwd": cwd, "url": address, "headers": headers, "type": transport,
	"transport": transport, "disabled": disabled, "enabled": enabled, "timeout": quiet, "description": quiet,
	"trust": trust, "alwaysAllow": allowed, "autoApprove": allowed,
}

func with(more map[string]means) map[string]means {
	out := map[string]means{}
	for _, m := range []map[string]means{common, more} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

var (
	braces = dialect{with(map[string]means{"headersHelper": unknown, "oauth": unknown}), dollarBraces}
	plain  = dialect{with(nil), none}
	gemini = dialect{with(map[string]means{"httpUrl": address, "includeTools": chosen, "excludeTools": chosen}), dollar}
	vscode = dialect{
		with(map[string]means{
			"envFile": envFile, "sandboxEnabled": sb, "sandbox": sb, "dev": quiet, "gallery": quiet, "version": quiet,
		}), dollarColon,
	}
	codex = dialect{with(map[string]means{
		"env_vars": passEnv, "http_headers": headers, "env_http_headers": envHeaders, "bearer_token_env_var": bearerEnv,
		"startup_timeout_sec": quiet, "startup_timeout_ms": quiet, "tool_timeout_sec": quiet, "required": quiet,
		"enabled_tools": chosen, "disabled_tools": chosen,
	}), none}
	opencode = dialect{with(map[string]means{"environment": env}), curlyEnv}
	zed      = dialect{with(map[string]means{"source": quiet, "settings": unknown}), none}
	goose    = dialect{with(map[string]means{"cmd": command, "envs": env, "env_keys": passEnv, "uri": address,
		"name": quiet, "display_name": quiet, "bundled": quiet, "available_tools": chosen}), dollarBraces}
)

// Places are where a host's file keeps servers: one for most, and for Claude Code one more for each
// project folder, of which dir's counts.
func (h *Host) places(v *Value, dir string) []place {
	out := []place{{v.Path(h.Under...), ""}}
	if h.Name == "claude" && dir != "" {
		out = append(out, place{v.Path("projects", dir, "mcpServers"), "projects." + dir})
	}
	return out
}

type place struct {
	v    *Value
	from string
}

// Whole parts the servers that could be read from those that could not.
func Whole(all []Server) (whole, left []Server) {
	for _, s := range all {
		if len(s.Problems) == 0 {
			whole = append(whole, s)
		} else {
			left = append(left, s)
		}
	}
	return whole, left
}

// Read returns the servers of a host's file in order, each with its problems, and the problems of the file itself.
func (h *Host) Read(file string, v *Value, dir string) ([]Server, []*Problem) {
	r := &reading{h: h, file: file}
	there := false
	for _, p := range h.places(v, dir) {
		if p.v == nil {
			continue
		}
		there = true
		if p.v.Kind != Map {
			r.fail(p.v.At, "", "%s must be a mapping of servers, not %s", strings.Join(h.Under, "."), p.v.Kind)
			continue
		}
		for _, m := range p.v.Members {
			if r.h.Own(m) {
				continue
			}
			one := &reading{h: h, file: file}
			s := one.server(m)
			s.From, s.Problems = p.from, one.problems
			r.servers = append(r.servers, s)
		}
	}
	if !there {
		r.fail(Pos{1, 1}, "name the host whose file it is: --from HOST", "there is no %s here, where %s keeps its servers",
			strings.Join(h.Under, "."), h.Title)
	}
	return r.servers, r.problems
}

type reading struct {
	h        *Host
	file     string
	servers  []Server
	problems []*Problem
}

// maxProblems bounds the reported problems of one entry.
const maxProblems = 50

func (r *reading) fail(at Pos, hint, format string, a ...any) {
	if len(r.problems) < maxProblems {
		p := fault(at, hint, format, a...)
		p.File = r.file
		r.problems = append(r.problems, p)
	}
}

// server reads one entry.
func (r *reading) server(m Member) Server {
	s := Server{Name: m.Name, At: m.At}
	if m.Value.Kind != Map {
		r.fail(m.Value.At, "", "server %s must be a mapping, not %s", display.Shell(m.Name), m.Value.Kind)
		return s
	}
	var words, more []Words
	for _, k := range m.Value.Members {
		switch meaning := r.h.dialect.keys[k.Name]; meaning {
		case command:
			words, more = r.command(&s, k, more)
		case args:
			more = r.list(k)
		default:
			r.key(&s, meaning, k)
		}
	}
	s.Command = append(words, more...)
	switch {
	case len(words) == 0 && len(s.URL) == 0:
		r.fail(m.At, "write a command or a url", "server %s has no command and no url", display.Shell(m.Name))
	case len(words) > 0 && len(s.URL) > 0:
		r.fail(m.At, "keep one", "server %s has both a command and a url", display.Shell(m.Name))
	}
	return s
}

// command reads the program: text, or with opencode a list, or with older Zed a mapping.
func (r *reading) command(s *Server, k Member, more []Words) (program, rest []Words) {
	switch k.Value.Kind {
	case Text:
		if k.Value.Text == "" {
			r.fail(k.Value.At, "write the program", "%s is empty", k.Name)
			return nil, more
		}
		return []Words{r.words(k.Value)}, more
	case List:
		return r.list(k), more
	case Map:
		path := k.Value.Get("path")
		if path != nil && path.Kind == Text && path.Text != "" {
			for _, sub := range k.Value.Members {
				switch sub.Name {
				case "path":
				case "args":
					more = r.list(sub)
				case "env":
					s.Env = append(s.Env, r.settings(sub)...)
				default:
					r.flag(s, "key.unknown", sub.At, "the key %s is not known and not taken over", display.Shell(sub.Name))
				}
			}
			return []Words{r.words(*path)}, more
		}
	}
	r.fail(k.Value.At, "", "%s must be text, not %s", k.Name, k.Value.Kind)
	return nil, more
}

// key reads one of the other keys of an entry.
func (r *reading) key(s *Server, m means, k Member) {
	switch m {
	case env:
		s.Env = append(s.Env, r.settings(k)...)
	case passEnv:
		s.PassEnv = r.names(k)
	case cwd:
		s.Cwd = r.text(k)
	case address:
		s.URL = r.text(k)
	case headers:
		s.Headers = r.settings(k)
	case envHeaders:
		s.EnvHeader = r.settings(k)
	case bearerEnv:
		s.BearerEnv = r.text(k).Raw()
	case transport:
		s.Transport = r.text(k).Raw()
	case enabled:
		s.Disabled = !r.truth(k)
	case disabled:
		s.Disabled = r.truth(k)
	case trust:
		if r.truth(k) {
			r.flag(s, "trust", k.At, "%s asks nobody before a call (trust: true); under waldo the contract says who is asked",
				r.h.Title)
		}
	case allowed:
		if len(k.Value.Items) > 0 || k.Value.Text == "true" {
			r.flag(s, "trust", k.At, "%s asks nobody before calls that %s names; under waldo the contract says who is asked",
				r.h.Title, k.Name)
		}
	case chosen:
		r.flag(s, "tools", k.At, "%s chooses among its tools; under waldo a tool is shown where capabilities names it",
			k.Name)
	case envFile:
		r.flag(s, "env.file", k.At, "its variables from a file are not taken over: write each under secrets, "+
			"as dotenv:/PATH#VARIABLE")
	case sb:
		if k.Name == "sandboxEnabled" && r.truth(k) {
			r.flag(s, "trust", k.At, "%s asks nobody before its calls (sandboxEnabled: true); waldo's own sandbox holds it "+
				"instead, with no network and no files until they are written", r.h.Title)
		}
	case quiet:
	default:
		r.flag(s, "key.unknown", k.At, "the key %s is not known and not taken over", display.Shell(k.Name))
	}
}

func (r *reading) flag(s *Server, code string, at Pos, format string, a ...any) {
	s.Flags = append(s.Flags, Flag{code, fault(at, "", format, a...).Text, at})
}

// scalar returns the text of a value that a host turns into text.
func (r *reading) scalar(what string, v Value) (string, bool) {
	switch v.Kind {
	case Text, Number, Bool:
		if strings.ContainsRune(v.Text, 0) {
			r.fail(v.At, "remove it", "%s holds a NUL character", what)
			return "", false
		}
		return v.Text, true
	}
	r.fail(v.At, "", "%s must be text, not %s", what, v.Kind)
	return "", false
}

func (r *reading) words(v Value) Words {
	s, _ := r.scalar("it", v)
	return r.h.dialect.vars.split(s)
}

func (r *reading) text(k Member) Words {
	s, _ := r.scalar(display.Shell(k.Name), k.Value)
	return r.h.dialect.vars.split(s)
}

func (r *reading) truth(k Member) bool {
	if k.Value.Kind != Bool {
		r.fail(k.Value.At, "", "%s must be true or false, not %s", display.Shell(k.Name), k.Value.Kind)
	}
	return k.Value.Text == "true"
}

// items returns the elements of a list of what; hint shows how to write one.
func (r *reading) items(k Member, what, hint string) []Value {
	if k.Value.Kind != List {
		r.fail(k.Value.At, hint, "%s must be a list of %s, not %s", display.Shell(k.Name), what, k.Value.Kind)
		return nil
	}
	return k.Value.Items
}

func (r *reading) list(k Member) (out []Words) {
	for _, item := range r.items(k, "texts", "write it as [a, b]") {
		s, _ := r.scalar("an element of "+display.Shell(k.Name), item)
		out = append(out, r.h.dialect.vars.split(s))
	}
	return out
}

// names reads a list of variables; Codex also takes {name: …} for one.
func (r *reading) names(k Member) (out []Setting) {
	for _, item := range r.items(k, "names", "write it as [A, B]") {
		if n := item.Get("name"); n != nil {
			item = *n
		}
		if s, ok := r.scalar("an element of "+display.Shell(k.Name), item); ok {
			out = append(out, Setting{Name: s, At: item.At})
		}
	}
	return out
}

func (r *reading) settings(k Member) []Setting {
	if k.Value.Kind == Null {
		return nil
	}
	if k.Value.Kind != Map {
		r.fail(k.Value.At, "", "%s must be a mapping of names to texts, not %s", display.Shell(k.Name), k.Value.Kind)
		return nil
	}
	var out []Setting
	for _, m := range k.Value.Members {
		if s, ok := r.scalar(display.Shell(m.Name), m.Value); ok {
			out = append(out, Setting{m.Name, r.h.dialect.vars.split(s), m.Value.At})
		}
	}
	return out
}

// Base is the folder that ${workspaceFolder} stands for: that of the project a file belongs to.
func Base(file string) string {
	dir := filepath.Dir(file)
	switch filepath.Base(dir) {
	case ".vscode", ".cursor", ".gemini", ".codex", ".zed":
		return filepath.Dir(dir)
	}
	return dir
}
