package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Load reads a regular file of at most 1 MiB and returns what Parse makes of it. The error is of
// type Problems where the file could be read.
func Load(file string) (*Config, error) { return LoadIn(file, "") }

// LoadIn is Load in an environment that the operator selects instead of the file's; empty: the file's.
func LoadIn(file, environment string) (*Config, error) {
	text, err := ReadFile(file)
	if err != nil {
		return nil, err
	}
	cfg, problems := ParseIn(file, text, environment)
	if len(problems) > 0 {
		return nil, problems
	}
	return cfg, nil
}

// ReadFile returns the text of a configuration file: a regular file of at most 1 MiB.
func ReadFile(file string) ([]byte, error) {
	st, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return text, nil
}

// Parse parses the text of a waldo.yaml; name is only shown in positions. With any problem it returns no
// configuration. Warnings are in Config.Warnings. policy.New compiles the conditions.
func Parse(name string, text []byte) (*Config, Problems) { return ParseIn(name, text, "") }

// ParseIn is Parse in an environment that the operator selects instead of the file's; empty: the file's.
func ParseIn(name string, text []byte, environment string) (*Config, Problems) {
	p := &parser{reader: reader{file: name, hints: map[*yaml.Node]string{}}, cfg: Default()}
	p.cfg.File, p.cfg.Digest = name, digest(text)
	p.cfg.Contracts = nil
	if n := p.document(text); n != nil {
		p.top(n)
	}
	p.environment(environment)
	p.chooseSecrets()
	if len(p.problems) == 0 {
		p.check()
	}
	if len(p.problems) > 0 {
		p.problems.Sort()
		p.problems.cover()
		return nil, p.problems
	}
	p.complete()
	p.warnings.Sort()
	p.cfg.Warnings = p.warnings
	return p.cfg, nil
}

func digest(b []byte) string {
	s := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(s[:])
}

// environment selects where the contracts hold, and remembers which environments the file knows.
func (p *parser) environment(selected string) {
	if p.cfg.Environment != "" {
		p.known = append(p.known, p.cfg.Environment)
	}
	if selected == "" {
		return
	}
	if !label(selected) {
		p.against(Position{File: p.file}, "value.name", "letters, digits, - and _, beginning with a letter", "the selected environment cannot be "+cut(selected, 40))
		return
	}
	p.cfg.Environment, p.known = selected, append(p.known, selected)
}

type parser struct {
	reader
	cfg    *Config
	keepAt Position // of log.keep
	known  []string // environments that are selected, or that environment: names
}

func (p *parser) top(n *yaml.Node) {
	for _, f := range p.fields(n, top) {
		switch f.name {
		case "version":
			p.integer(f, 1, 1)
		case "environment":
			p.cfg.Environment = p.label(f)
		case "servers":
			for _, e := range p.entries(f) {
				p.server(e)
			}
		case "secrets":
			for _, e := range p.entries(f) {
				p.secretEntry(e)
			}
		case "capabilities":
			for _, e := range p.entries(f) {
				p.entry(e)
			}
		case "internal":
			p.cfg.Internal = p.hosts(f)
		case "addresses":
			p.addresses(f)
		case "redaction":
			p.redaction(f)
		case "approval":
			p.approvals(f)
		case "gateway":
			p.gateway(f)
		case "log":
			for _, g := range p.fields(f.val, inLog) {
				p.cfg.Log.Keep, p.keepAt = p.age(g), p.at(g.val)
			}
		case "store":
			for _, g := range p.fields(f.val, inStore) {
				if s := p.text(g); s != "" && s != "sqlite" {
					p.later(g.val, "store.url other than sqlite")
				}
			}
		case "sandboxes":
			for _, g := range p.fields(f.val, inBoxes) {
				p.room(g)
			}
		}
	}
}

// room parses the bound on live sandboxes.
func (p *parser) room(f field) {
	o := &p.cfg.Sandboxes
	switch f.name {
	case "default":
		p.word(f, inBoxes)
	case "memory_percent":
		o.MemoryPercent = p.integer(f, 1, 1000)
	case "per_principal":
		o.PerPrincipal = p.integer(f, 1, 10_000)
	case "wait":
		o.Wait = p.duration(f, 10*time.Minute)
	}
}

func (p *parser) label(f field) string {
	s := p.text(f)
	if s != "" && !label(s) {
		p.fail(f.val, "value.name", "letters, digits, - and _, beginning with a letter", "%q cannot be %q", f.name, cut(s, 40))
	}
	return s
}

func (p *parser) server(e field) {
	s := Server{Name: e.name, At: p.at(e.key), IdleTimeout: 10 * time.Minute}
	if !label(e.name) || strings.Contains(e.name, "__") {
		p.fail(e.key, "value.name", "letters, digits, - and _, beginning with a letter, without \"__\"", "a server cannot be named %q", cut(e.name, 40))
	}
	at := map[string]*yaml.Node{}
	for _, f := range p.fields(e.val, inServer) {
		at[f.name] = f.val
		switch f.name {
		case "command":
			s.Command, s.CommandAt = p.command(f), p.at(f.val)
		case "url":
			s.URL = p.address(f)
		case "placement":
			s.Placement = p.word(f, inServer)
		case "network":
			s.Network = p.network(f, inServer)
		case "secrets":
			s.Secrets = p.secretRefs(f, "server "+e.name)
		case "env":
			s.Env = p.pairs(f)
		case "mounts":
			p.mounts(f, &s)
		case "data":
			s.Data = p.label(f)
		case "per_session":
			s.PerSession = p.boolean(f)
		case "limits":
			s.Limits = p.sandboxLimits(f, inLimits, 1<<20)
		case "names":
			s.Plain = p.word(f, inServer) == "plain"
		case "server_requests":
			s.Asks = p.asks(f)
		case "idle_timeout":
			s.IdleTimeout = p.duration(f, 24*time.Hour)
		case "auth":
			s.Auth = p.auth(f, e.name)
		}
	}
	p.place(e, &s, at)
	p.cfg.Servers[e.name] = s
}

func (p *parser) asks(f field) Asks {
	var a Asks
	for _, g := range p.fields(f.val, inServerRequests) {
		switch g.name {
		case "elicitation":
			modes := p.words(g, inServerRequests)
			a.Form, a.URL = slices.Contains(modes, "form"), slices.Contains(modes, "url")
		case "sampling":
			a.Sampling = p.boolean(g)
		case "roots":
			if g.val.Kind == yaml.SequenceNode {
				a.Roots = p.texts(g)
			} else {
				a.HostRoots = p.word(g, inServerRequests) == "host"
			}
		}
	}
	return a
}

// place checks that a server is reached in one way and that what is asked of its box can be held.
func (p *parser) place(e field, s *Server, at map[string]*yaml.Node) {
	switch {
	case at["command"] == nil && at["url"] == nil:
		p.fail(e.key, "server.unreachable", "write a command or a url", "server %q has no command and no url", cut(e.name, 40))
		return
	case at["command"] != nil && at["url"] != nil:
		p.fail(at["url"], "server.twice", "keep one", "server %q has both a command and a url", cut(e.name, 40))
		return
	}
	if s.Placement == "" {
		s.Placement = "sandbox"
		if s.URL != "" {
			s.Placement = "outside"
		}
	}
	if s.URL != "" && s.Placement != "outside" {
		p.fail(at["placement"], "key.misplaced", "write placement: outside", "a server at a url runs elsewhere: waldo cannot put it in a sandbox")
	}
	if s.Placement == "workspace" {
		if n := at["per_session"]; n != nil && !s.PerSession {
			p.fail(n, "key.misplaced", "remove it, or write placement: sandbox", "a server in the workspace of a session is that session's own")
		}
		if n := at["mounts"]; n != nil {
			p.fail(n, "key.misplaced", "remove it, or write placement: sandbox", "a server in the workspace of a session sees that session's input")
		}
		s.PerSession = true
	}
	if s.URL == "" && at["auth"] != nil {
		p.fail(at["auth"], "key.misplaced", "use secrets to give a program its token", "auth belongs to a server at a url")
	}
	inBox := []string{"network", "mounts", "limits", "data"}
	if s.URL != "" {
		inBox = append(inBox, "secrets", "env")
	}
	for _, k := range inBox {
		if n := at[k]; n != nil && s.Placement == "outside" {
			p.fail(n, "key.not_enforced", "remove it, or write placement: sandbox", "%q cannot be held to for a server outside", k)
		}
	}
}

func (p *parser) address(f field) string {
	s := p.text(f)
	u, err := url.Parse(s)
	switch {
	case s == "":
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		p.fail(f.val, "value.url", "as in https://host/mcp", "not the address of a server")
	case u.User != nil:
		p.fail(f.val, codeLiteral, "use auth: {bearer: env:VARIABLE}", "an address must not hold a password")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		p.fail(f.val, "value.url", "use https", "http is taken only on this machine")
	default:
		return s
	}
	return ""
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (p *parser) pairs(f field) map[string]string {
	out := map[string]string{}
	for _, e := range p.entries(f) {
		if !variable(e.name) {
			p.fail(e.key, "value.name", "", "%q is not the name of a variable", cut(e.name, 40))
		}
		if out[e.name] = p.text(e); looksSecret(out[e.name]) {
			p.fail(e.val, codeLiteral, "move it to secrets, as env:VARIABLE", "the value of %s looks like a secret", cut(e.name, 40))
		}
	}
	return out
}

// redaction parses the classes to hide. Hidden personal data is tokenised unless the file turns that off, so that a
// tool gets the original value back.
func (p *parser) redaction(f field) {
	p.cfg.Redaction.Tokens = true
	for _, g := range p.fields(f.val, inRedact) {
		switch g.name {
		case "model":
			p.cfg.Redaction.Model = withSecrets(p.words(g, inRedact))
		case "tokens":
			p.cfg.Redaction.Tokens = p.boolean(g)
		}
	}
}

var fingerprint = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func (p *parser) approvals(f field) {
	for _, g := range p.fields(f.val, inAsk) {
		switch g.name {
		case "timeout":
			p.cfg.Approval.Timeout = p.duration(g, 30*24*time.Hour)
		case "carriers":
			p.cfg.Approval.Carriers = p.words(g, inAsk)
		case "notify":
			p.cfg.Approval.Notify = p.texts(g)
		case "notify_arguments":
			p.cfg.Approval.NotifyArguments = p.boolean(g)
		case "root":
			p.cfg.Approval.Root = p.text(g)
			if root := p.cfg.Approval.Root; root != "" && !fingerprint.MatchString(root) {
				p.fail(g.val, "value.fingerprint", "waldo approve --list prints it", "a fingerprint is sha256: and 64 hexadecimal digits")
			}
		case "by":
			for _, e := range p.entries(g) {
				if !label(e.name) {
					p.fail(e.key, "value.name", "", "a role cannot be named %q", cut(e.name, 40))
				}
				p.cfg.Approval.Roles[e.name] = p.texts(e)
			}
		}
	}
}
