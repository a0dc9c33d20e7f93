package launch

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"waldo/internal/app"
	"waldo/internal/cli/exitcode"
	"waldo/internal/core/session"
	"waldo/internal/executor/protect"
	"waldo/internal/executor/runner"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/id"
	"waldo/internal/model/secret"
	"waldo/internal/sandbox"
)

// forever stands for no limit of time: every sandbox has one.
const forever = 100 * 365 * 24 * time.Hour

// The limits of a session, which builds need.
var (
	usual = contract.Limits{MemoryMB: 4096, Pids: 1024, Files: 4096, DiskMB: 4096, OutputKB: 200, CPU: forever}
	most  = sandbox.Limits{Wall: forever, CPU: forever, Memory: 1 << 40, Pids: 1 << 15, Files: 1 << 16, Disk: 1 << 40,
		Inodes: 10_000_000, Output: 1 << 30}
)

// asked is what the person at the terminal asked for.
type asked struct {
	profile Profile
	command string   // of --command; empty: the profile's program
	args    []string // of the host
	project string
	person  string // the home of the person
	hosts   []string
	ports   [][2]uint16 // of the sandbox, and of this machine's loopback
	changes string      // what becomes of writes to the project: keep, review or discard; empty: they stay
}

// plan is everything that one session gets, before it starts.
type plan struct {
	asked
	program    found
	contract   contract.Contract
	secrets    map[string]contract.Secret
	key        string // the variable of the credential; empty: none was found
	tail       string // the end of its placeholder, which one host checks
	auth       string // the host's name for it
	run        call.Run
	mounts     []sandbox.Mount
	repository string   // of a linked working tree; empty: the project is none
	sealed     []string // of the project: read-only
	hidden     []string // and not shown
}

// prepare makes the plan of a session.
func prepare(a asked, state string, cfg *contract.Config) (p plan, err error) {
	p = plan{asked: a, secrets: map[string]contract.Secret{}}
	if p.program, err = find(cmp.Or(a.command, a.profile.Program), a.profile.Needs); err != nil {
		return p, missing(a.profile, err)
	}
	if err := p.contractOf(cfg); err != nil {
		return p, err
	}
	if p.contract.Denied {
		return p, nil
	}
	at := contract.Position{File: filepath.Join(p.project, "waldo.yaml")}
	here := files.Here(state)
	if _, err := here.Place(at, p.project); err != nil {
		return p, err
	}
	p.withRepository(here)
	tools, env := tools(a.person)
	p.mounts = distinct(append(append(p.mounts, p.program.mounts...), tools.mounts...))
	p.run.Home, p.run.Dir, p.run.NoTools, p.run.Changes = homeAt, a.project, true, a.changes
	for _, dir := range slices.Concat(p.program.dirs, tools.dirs) {
		if !slices.Contains(p.run.Path, dir) && !below(dir, "/usr/bin") {
			p.run.Path = append(p.run.Path, dir)
		}
	}
	p.run.Env = append(env, surroundings(a.project)...)
	return p, nil
}

// look finds what must not change in the project and what is hidden of it, for --explain. A session that starts looks
// when its mounts are made.
func (p *plan) look() error {
	if p.contract.Denied {
		return nil
	}
	rules, err := protect.New(p.contract.Protect, p.contract.Unprotect)
	if err != nil {
		return err
	}
	for _, dir := range []string{p.project, p.repository} {
		if dir == "" {
			continue
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			return err
		}
		found, err := rules.At(dir).Look(root)
		root.Close()
		if err != nil {
			return err
		}
		for _, f := range found {
			name := f.Path
			if dir == p.repository {
				name = filepath.Join(dir, name)
			}
			if f.Hidden {
				p.hidden = append(p.hidden, name)
			} else if f.Link == "" {
				p.sealed = append(p.sealed, name)
			}
		}
	}
	return nil
}

// contractOf makes the contract of the session: the profile's, with what the configuration's own contract for launch
// adds. One that denies it is taken as it is.
func (p *plan) contractOf(cfg *contract.Config) error {
	c := contract.Contract{
		Pattern: call.Launch, At: contract.Position{File: "built-in"}, BuiltIn: true, Channel: call.Launch,
		Transport: contract.SandboxedExec, Mode: contract.Write, Danger: 2, Isolation: contract.UsualIsolation,
		Filesystem: contract.WorkspaceOnly, Timeout: forever, ResponseBudget: 64 << 10, Run: usual,
		Approval: contract.Approval{When: contract.Never, At: contract.Position{File: "built-in"}},
		Log:      "full", Trust: "untrusted", Redact: []string{"secrets"}, Secrets: map[string]secret.Ref{},
		Env: map[string]string{},
	}
	c.Mounts = []contract.Mount{{Target: p.project, From: p.project, Writable: true, At: c.At}}
	c.Network.Allow, c.Network.Off = slices.Clone(p.profile.Allow), slices.Clone(p.profile.Off)
	c.Network.Limits.Bytes = 1 << 40
	for _, written := range cfg.Contracts {
		if written.Pattern != call.Launch {
			continue
		}
		if written.Denied { // the pipeline decides and records it
			p.contract = written
			return nil
		}
		c.At, c.BuiltIn, c.Keys = written.At, false, written.Keys
		if _, ok := written.Keys["isolation"]; ok { // the run refuses one that cannot hold the project
			c.Isolation = written.Isolation
		}
		c.Network.Allow = append(c.Network.Allow, written.Network.Allow...)
		c.Network.Internal, c.Network.Packages = written.Network.Internal, written.Network.Packages
		maps.Copy(c.Secrets, written.Secrets)
		c.Reveal = written.Reveal
		maps.Copy(c.Env, written.Env)
		override(&c.Run, written.Run)
		c.Mounts = append(c.Mounts, written.Mounts...)
		c.Protect, c.Unprotect = written.Protect, written.Unprotect
		c.Approval, c.Rules = written.Approval, written.Rules
		c.Confirm, c.Witness = written.Confirm, written.Witness
	}
	c.Protect = append(slices.Clip(c.Protect), p.sealing(cfg.Log.Policy)...)
	c.Network.Allow = append(c.Network.Allow, p.hosts...)
	maps.Copy(c.Env, p.profile.Env)
	p.contract = c
	return p.credential()
}

// literal makes a pattern that matches a path alone.
var literal = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`)

// sealing returns the patterns that seal a file of the project, and where a link leads from it; empty: it lies
// elsewhere.
func (p *plan) sealing(file string) (out []string) {
	real, _ := filepath.EvalSymlinks(file) // of one that is missing: empty
	folder, _ := filepath.EvalSymlinks(filepath.Dir(file))
	for _, path := range []string{file, real, filepath.Join(folder, filepath.Base(file))} {
		if name, err := filepath.Rel(p.project, path); err == nil && filepath.IsLocal(name) && name != "." {
			out = append(out, literal.Replace(filepath.ToSlash(name)))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// override takes the limits that a contract writes.
func override(to *contract.Limits, from contract.Limits) {
	to.MemoryMB, to.Pids, to.Files = cmp.Or(from.MemoryMB, to.MemoryMB), cmp.Or(from.Pids, to.Pids), cmp.Or(from.Files, to.Files)
	to.DiskMB, to.OutputKB, to.CPU = cmp.Or(from.DiskMB, to.DiskMB), cmp.Or(from.OutputKB, to.OutputKB), cmp.Or(from.CPU, to.CPU)
}

// credential chooses the key of the model: one from the environment, else one from a login of the host. The sandbox
// gets a placeholder of its shape.
func (p *plan) credential() error {
	p.auth = p.profile.Credentials[p.profile.Login].Auth
	for _, v := range slices.Sorted(maps.Keys(p.profile.Credentials)) {
		k := p.profile.Credentials[v]
		spec, login := secret.Spec{}, false
		switch {
		case p.contract.Secrets[v] != "":
			return nil // the configuration names where it comes from
		case os.Getenv(v) != "":
			spec.From = secret.Ref("env:" + v)
		case k.File != "" && k.there(p.person):
			self, err := os.Executable()
			if err != nil {
				return err
			}
			spec.Command, spec.Timeout, login = []string{self, "launch", "--token", p.profile.Name, v}, 2*loginPatience, true
		default:
			continue
		}
		name := "launch." + p.profile.Name
		holder := placeholder(k.Shape)
		var renew, renewed string
		if login {
			var err error
			if renew, renewed, err = k.Renew.inside(holder); err != nil {
				return err
			}
		}
		p.secrets[name] = contract.Secret{Name: name, At: p.contract.At, Spec: spec, Inject: &contract.Inject{
			Host: k.Host, Port: 443, Methods: k.Methods, Paths: k.Paths, As: k.As, Name: k.Name, Placeholder: holder,
			Renew: renew, Renewed: renewed,
		}}
		p.contract.Secrets[v], p.key, p.tail = secret.Ref(name), v, holder[max(0, len(holder)-20):]
		p.auth = k.Auth
		maps.Copy(p.contract.Env, k.Env)
		for _, also := range k.Also {
			p.contract.Env[also] = holder
		}
		if login {
			p.contract.Network.Allow = append(p.contract.Network.Allow, p.profile.LoginAllow...)
		}
		if !slices.ContainsFunc(p.contract.Network.Allow, func(line string) bool { return strings.Contains(line, k.Host) }) {
			p.contract.Network.Allow = append(p.contract.Network.Allow, k.Host)
		}
		return nil
	}
	return nil
}

// placeholder makes a stand-in of a shape, which nobody can guess.
func placeholder(shape string) string {
	b := make([]byte, 48)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	text := base64.RawURLEncoding.EncodeToString(b)
	if shape != "jwt" {
		return shape + strings.NewReplacer("-", "a", "_", "b").Replace(text)
	}
	part := func(v any) string {
		b, _ := json.Marshal(v) // of texts and numbers
		return base64.RawURLEncoding.EncodeToString(b)
	}
	return part(map[string]string{"alg": "RS256", "typ": "JWT"}) + "." +
		part(map[string]any{"sub": "waldo", "iat": 1700000000, "exp": 4000000000, "waldo": "placeholder"}) + "." + text
}

// surroundings are what a session has of the person's own: terminal, time zone, language, and who commits.
func surroundings(project string) (env []string) {
	for _, v := range []string{"TERM", "COLORTERM", "LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_TIME", "NO_COLOR"} {
		if s := os.Getenv(v); s != "" {
			env = append(env, v+"="+s)
		}
	}
	if os.Getenv("LANG") == "" {
		env = append(env, "LANG=C.UTF-8")
	}
	zone := os.Getenv("TZ")
	if link, err := os.Readlink("/etc/localtime"); zone == "" && err == nil {
		_, zone, _ = strings.Cut(link, "zoneinfo/")
	}
	if zone != "" {
		env = append(env, "TZ="+zone)
	}
	who := map[string]string{}
	out, _ := exec.Command("git", "-C", project, "config", "-z", "--get-regexp", `^user\.(name|email)$`).Output()
	for entry := range strings.SplitSeq(string(out), "\x00") {
		key, text, _ := strings.Cut(entry, "\n")
		who[strings.ToUpper(strings.TrimPrefix(key, "user."))] = strings.TrimSpace(text) // the last one counts
	}
	for key, text := range who {
		if text != "" {
			env = append(env, "GIT_AUTHOR_"+key+"="+text, "GIT_COMMITTER_"+key+"="+text)
		}
	}
	slices.Sort(env)
	return env
}

// start runs the session to its end, and gives the terminal back before anybody is asked about git's configuration.
func (p plan) start(ctx context.Context, h *app.App, streams runner.Streams, ports ports, flush func() error) (
	r call.Result, err error,
) {
	if !p.contract.Denied && h.Runner.Drivers[p.contract.Isolation] == nil {
		return r, &exitcode.Exit{Code: exitcode.Denied, Text: "isolation " + p.contract.Isolation +
			" cannot be had on this machine, and an agent is started in no weaker one", Hint: "waldo doctor says why"}
	}
	n, err := h.Sessions.Open(h.Config.Gateway.Tenants.Of(principal(p.asked)), id.New(id.Workspace))
	if err != nil {
		return r, err
	}
	defer h.Sessions.Close(n.ID)
	defer h.Tidy(n)
	dir, err := os.MkdirTemp(h.State, "launch-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if !p.contract.Denied {
		if err := p.furnish(h.State, dir); err != nil {
			return r, err
		}
		record(ctx, h, n, p)
	}
	configs := lender{dir: dir}
	streams.Furnished, streams.Lend = p.mounts, configs.lend
	g, err := open(ctx, h, n, dir)
	if err != nil {
		return r, err
	}
	defer g.close()
	argv := []string{p.program.path}
	words := home{words: p.words()}
	for _, a := range p.profile.Args {
		argv = append(argv, words.fill(a))
	}
	args, err := call.ArgsOf(map[string]any{"argv": append(argv, p.args...)})
	if err != nil {
		return r, err
	}
	c := call.Call{ID: id.New(id.Call), Capability: call.Launch, Channel: call.Launch, Args: args, Session: n.ID,
		Principal: n.Principal}
	streams.Started = func(sb sandbox.Sandbox) func() { return ports.forward(ctx, h, c, p, sb) }
	c.Run = runner.Options{Run: p.run, Streams: streams}.Request()
	defer h.Runner.Attach(c.ID, streams)()
	if r, err = h.Broker.Call(ctx, c); err != nil {
		return r, err
	}
	_ = flush() // the caller has its error again
	settling, stop := signal.NotifyContext(context.WithoutCancel(ctx), os.Interrupt)
	defer stop()
	r.Facts.Warnings = append(r.Facts.Warnings, configs.settle(settling, h, n)...)
	return r, nil
}

// furnish fills the kept home and the session's folder, and adds them to the mounts.
func (p *plan) furnish(state, dir string) error {
	kept, err := keptHome(state, cmp.Or(p.profile.Name, filepath.Base(p.program.path)), p.project)
	if err != nil {
		return err
	}
	h := home{dir: kept, person: p.person, words: p.words()}
	if err := h.seed(p.profile); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for name, text := range p.profile.Session {
		if err := write(root, name, []byte(h.fill(text))); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.mounts = append([]sandbox.Mount{{Source: kept, Target: homeAt, Writable: true, Live: true},
		{Source: dir, Target: sessionAt, Writable: true, Live: true}, {Source: self, Target: waldoAt}}, p.mounts...)
	return nil
}

func (p plan) words() map[string]string {
	return map[string]string{"project": p.project, "tail": p.tail, "waldo": waldoAt, "session": sessionAt, "home": homeAt,
		"auth": p.auth}
}

// principal is who a session's calls come from.
func principal(a asked) call.Principal {
	return call.Principal("agent:" + cmp.Or(a.profile.Name, "command"))
}

// missing returns what to install.
func missing(p Profile, err error) error {
	if p.Package == "" || !errors.Is(err, exec.ErrNotFound) {
		return err
	}
	return fmt.Errorf("%s is not here: no %s in $PATH; npm install -g %s installs it, --command PROGRAM starts another", p.Title,
		p.Program, p.Package)
}

// record writes the start of a session to the log.
func record(ctx context.Context, h *app.App, n session.Info, p plan) {
	body, err := json.Marshal(Body{Session: string(n.ID), Principal: string(n.Principal), Host: p.profile.Name,
		Version: p.program.version, Program: p.program.path, Project: p.project, Hosts: p.contract.Network.Allow})
	if err == nil {
		_, _ = h.Log.Append(ctx, Kind, body, false)
	}
}
