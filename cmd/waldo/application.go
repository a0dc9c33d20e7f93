package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"waldo/internal/agenthosts/wellknown"
	"waldo/internal/app/configfile"
	"waldo/internal/app/secrets"
	"waldo/internal/app/trust"
	"waldo/internal/core/approval"
	"waldo/internal/core/approval/notify"
	"waldo/internal/core/audit"
	"waldo/internal/core/audit/headfile"
	"waldo/internal/core/broker"
	"waldo/internal/core/policy"
	"waldo/internal/core/redact"
	"waldo/internal/core/session"
	"waldo/internal/executor/admit"
	"waldo/internal/executor/launch"
	"waldo/internal/executor/runner"
	"waldo/internal/executor/serverpackage"
	"waldo/internal/executor/upstream"
	"waldo/internal/executor/upstream/eras"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/frontend/bridge"
	"waldo/internal/frontend/mcpserver/catalog"
	"waldo/internal/frontend/mcpserver/identity"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/pkginstall"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/admission"
	"waldo/internal/sandbox/confined"
	"waldo/internal/sandbox/gvisor"
	"waldo/internal/sandbox/namespace"
	"waldo/internal/sandbox/pool"
	"waldo/internal/storage/database"
	"waldo/internal/storage/presence"
	"waldo/internal/storage/secretsource"
	"waldo/internal/storage/workspace"
)

// application joins all packages: storage, core, executors and front ends. openApplication builds it in that order,
// and Close closes it in reverse.
type application struct {
	state     string
	cfg       *contract.Config
	policy    *policy.Policy
	store     *database.Store
	log       *audit.Log
	sessions  *session.Manager
	redact    *redact.Redactor
	secrets   *secretsource.Keeper
	known     *redact.Registry // the secrets that were fetched
	approvals *approval.Service
	lock      *lockfile.Lock                // as read when the application was opened
	relocked  atomic.Pointer[lockfile.Lock] // taken since; nil: none
	witness   *audit.Witness                // the approvals in the log
	asker     *presence.Process             // marks this process as running; nil: not supported here
	lasting   call.Session                  // the session of waldo call, which the next process resumes
	drivers   map[string]sandbox.Driver
	runner    *runner.Runner
	upstreams *upstream.Manager
	packages  *serverpackage.Packages // of servers; only `waldo lock --accept` pins a package
	programs  map[string]string       // digests of the programs of a found configuration; nil: the operator named it
	catalogue *catalog.Catalogue
	broker    *broker.Broker
	attendant *attendant               // carries out the operator's orders
	entry     func() *identity.Options // who can connect over HTTP
	lives     *lives                   // the current application, and earlier ones
	picture   string                   // the snapshot whose files a run starts with; empty: none
	set       settings
	close     []func() error
	ground    []func() error // closes the shared services; empty in later applications
}

// settings are the choices of a command for the application that it opens.
type settings struct {
	cfg      *contract.Config // nil: load the configured one
	limits   sandbox.Limits   // the most a run may ask for; zero: mostLimits
	patience time.Duration    // the shortest wait for a human before a call returns "waiting"
	carriers []approval.Notifier
	keep     string           // a folder to use as the workspace; empty: the session's own
	warm     int              // prewarmed sandboxes, for a long-running waldo; 0: none
	sessions int              // resident Pythons, for a long-running waldo; 0: none
	tells    bool             // the command itself reports server faults
	redact   bool             // redact terminal output as for the model
	relocks  bool             // the command can pin again if waldo.lock is missing
	hup      <-chan os.Signal // requests a reload; nil: no signal
	after    *application     // shares its store, log, sessions, approvals and pools; nil: none
}

// drivers returns a driver for each isolation level, by the name that contracts use.
func drivers(state string) map[string]sandbox.Driver {
	return map[string]sandbox.Driver{
		"gvisor":    gvisor.New(gvisor.Options{State: state, MilliCPU: 1000}),
		"namespace": namespace.New(namespace.Options{MilliCPU: 1000}),
		"confined":  confined.New(confined.Options{MilliCPU: 1000}),
	}
}

// spareBoxes is the number of namespace sets that a long-running waldo creates ahead.
const spareBoxes = 2

// strongBoxes limits the prewarmed gVisor sandboxes: each runs a kernel of its own.
const strongBoxes = 2

// keepWarm wraps the drivers in pools of prewarmed sandboxes. A pool starts a kind of sandbox ahead after its first
// use. The pools close last, since sandboxes end in them.
func (h *application) keepWarm(most int) {
	if most <= 0 {
		return
	}
	h.drivers["namespace"] = namespace.New(namespace.Options{MilliCPU: 1000, Spares: spareBoxes})
	for level, n := range map[string]int{"namespace": most, "gvisor": min(most, strongBoxes)} {
		p := pool.New(h.drivers[level], pool.Options{Most: n, Failed: func(err error) { slog.Warn("warm sandboxes", "level", level, "why", err) }})
		h.drivers[level] = p
		h.close = append(h.close, p.Close)
	}
}

// defaultLimits apply to a run that requests no limits.
var defaultLimits = sandbox.Limits{
	Wall: 30 * time.Second, CPU: 10 * time.Second, Memory: 512 << 20, Pids: 64, Files: 64,
	Disk: 256 << 20, Inodes: 20_000, Output: 200 << 10,
}

// mostLimits bound a run whose operator is the person at the terminal.
var mostLimits = sandbox.Limits{
	Wall: 24 * time.Hour, CPU: 24 * time.Hour, Memory: 1 << 40, Pids: 1 << 15, Files: 1 << 16,
	Disk: 1 << 40, Inodes: 10_000_000, Output: 1 << 30,
}

// bridgePatience is how long a call of a script at a terminal waits for a human.
const bridgePatience = 10 * time.Minute

// patience is how long a call of each channel waits for a human. An agent host cancels a call after about a minute
// and retries it, so it gets the shorter wait.
var patience = map[string]time.Duration{"mcp": 2 * time.Second, "bridge": 20 * time.Second}

// openState creates and checks the state directory, and returns its path.
func openState(g *global) (string, error) {
	dir, err := configfile.StateDir(g.state)
	if err != nil {
		return "", err
	}
	dir, err = database.CheckDir(dir)
	if err != nil {
		return "", &exit{code: exitFailed, err: err, hint: "give another with --state DIR"}
	}
	return dir, nil
}

// openStore opens the state directory and its database. The caller closes the database.
func openStore(g *global) (string, *database.Store, error) {
	state, err := openState(g)
	if err != nil {
		return "", nil, err
	}
	s, err := database.Open(state)
	return state, s, err
}

// openApplication reads the configuration, then opens storage and core, the executors, and the pipeline.
func openApplication(ctx context.Context, g *global, s settings) (h *application, err error) {
	h = &application{known: g.known, set: s}
	if s.after != nil {
		h.known = s.after.known
	} else if h.known == nil {
		h.known = &redact.Registry{}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	if h.state, err = openState(g); err != nil {
		return h, err
	}
	if h.cfg = s.cfg; h.cfg == nil {
		if h.cfg, err = g.source().Load(h.state); err != nil {
			return h, err
		}
		if faults := files.Here(h.state).Outside(h.cfg); len(faults) > 0 {
			return h, &exit{code: exitUsage, err: faults[0], hint: faults[0].Hint}
		}
		if g.source().Found(h.cfg) {
			if h.programs, err = trust.TrustedPrograms(h.state, h.cfg); err != nil {
				return h, err
			}
		}
	}
	s.redact = g.redact
	if s.after != nil {
		h.stand(s.after)
	} else {
		h.drivers = drivers(h.state)
		h.keepWarm(s.warm)
	}
	if err = h.openStudy(ctx, s); err != nil {
		return h, err
	}
	if err = h.openWorkers(s); err != nil {
		return h, err
	}
	return h, h.openCorridor(s)
}

// machine describes this deployment to the policy: isolation levels, transports and secrets.
func (h *application) machine() policy.Machine {
	m := policy.Machine{
		Isolations: map[string]bool{},
		Transports: map[contract.Transport]bool{contract.SandboxedExec: true, contract.MCP: true},
		Secrets:    secrets.Named(h.state, h.cfg),
	}
	if h.lock != nil {
		m.Annotations = func(server, tool string) (strictjson.Value, bool) {
			if l := h.relocked.Load(); l != nil {
				return l.Annotations(server, tool)
			}
			return h.lock.Annotations(server, tool)
		}
	}
	for level := range h.drivers {
		m.Isolations[level] = true // each start checks the level again
	}
	return m
}

// logOptions returns where the log stores its head: in waldo.db, and in the file that $WALDO_LOG_HEAD names. A file
// on another machine exposes an attacker who can rewrite both the log and the database.
func logOptions(s *database.Store) audit.Options {
	o := audit.Options{Heads: s}
	if path := os.Getenv("WALDO_LOG_HEAD"); path != "" {
		o.Second = &headfile.File{Path: path}
	}
	return o
}

// openLog opens the log of a state directory. A retention time shortens the segments, because only whole segments can
// be removed.
func openLog(ctx context.Context, s *database.Store, keep time.Duration) (*audit.Log, error) {
	o := logOptions(s)
	o.SegmentAge = keep / 10
	log, err := audit.Open(ctx, s.Path("log"), o)
	if errors.Is(err, audit.ErrTampered) {
		err = &exit{code: exitFailed, err: err, hint: "look with waldo log verify; to go on with a new log: waldo log set-aside"}
	}
	return log, err
}

func (h *application) openStudy(ctx context.Context, s settings) (err error) {
	if err = trust.PinsGone(h.state, h.cfg); err != nil && !s.relocks {
		return err
	}
	if err = h.readLock(); err != nil {
		return err
	}
	if h.policy, err = policy.New(h.cfg, h.machine()); err != nil {
		return &exit{code: exitUsage, err: err}
	}
	if s.after == nil {
		if err = h.openGround(ctx, s); err != nil {
			return err
		}
	}
	h.entry = sync.OnceValue(func() *identity.Options { return entrance(h.cfg.Gateway) })
	h.redact = redact.New(h.cfg.Redaction, h.known, h.sessions)
	h.redact.Spill, h.redact.Terminal = h.spill, s.redact
	h.secrets = newKeeper(h.state, h.cfg, h.known)
	return nil
}

// openGround opens the services that survive a reload of the configuration.
func (h *application) openGround(ctx context.Context, s settings) (err error) {
	h.lives = newLives(h)
	defer func() { h.ground, h.close = h.close, nil }()
	if h.store, err = database.Open(h.state); err != nil {
		return err
	}
	h.close = append(h.close, h.store.Close)
	if h.log, err = openLog(ctx, h.store, h.cfg.Log.Keep); err != nil {
		return err
	}
	h.close = append(h.close, h.log.Close)
	h.sessions = session.NewManager(session.Defaults(), time.Now)
	h.witness = &audit.Witness{Dir: audit.Dir(h.state)}
	if h.asker, err = presence.New(h.state); err != nil {
		return err
	}
	if h.asker != nil {
		h.close = append(h.close, h.asker.Close)
	}
	rules := func() contract.Approvals { return h.lives.inForce().cfg.Approval }
	h.approvals = &approval.Service{
		Store: h.store, Rules: rules, Carriers: append([]approval.Notifier{notify.New(rules)}, s.carriers...), Record: enrolments(h.log),
		Asker: h.askerOf, Gone: presence.Gone(h.state),
		Witness: h.witness, Root: os.Getenv(rootVariable),
		Notes: func(d policy.Decision) []string { return h.lives.inForce().redact.Meanings(d) },
		WaitTimeout: func(channel string) time.Duration {
			if channel == "mcp" && slices.Contains(rules().Carriers, contract.Elicitation) {
				return s.patience // the host is asked at once
			}
			if channel == "bridge" && s.patience > 0 { // a person waits; the script's clock is paused
				return bridgePatience
			}
			return max(s.patience, patience[channel])
		},
	}
	return h.attend(ctx, s.hup)
}

// stand shares the services of another application that survive a reload.
func (h *application) stand(on *application) {
	h.lives, h.drivers, h.store, h.log, h.sessions = on.lives, on.drivers, on.store, on.log, on.sessions
	h.witness, h.asker, h.approvals = on.witness, on.asker, on.approvals
}

func (h *application) openWorkers(s settings) error {
	most := s.limits
	if most == (sandbox.Limits{}) {
		most = defaultLimits
		most.Wall, most.CPU = mostLimits.Wall, mostLimits.CPU // the contract's timeout bounds these
	}
	h.runner = &runner.Runner{
		Drivers: h.drivers, Warm: s.warm > 0, Auto: "namespace", Default: defaultLimits, Most: most, Sessions: s.sessions,
		Workspace: func(n call.Session) (*workspace.Workspace, error) { return h.workspace(n, s.keep) },
	}
	h.runner.Shares = slices.ContainsFunc(slices.Collect(maps.Values(h.cfg.Servers)), func(s contract.Server) bool { return s.Placement == launch.InWorkspace })
	h.runner.Egress = h.egresses().ForCall
	h.runner.Secret = h.secrets.Get
	h.runner.Cut, h.runner.Window = h.known.Head, h.known.Window
	h.runner.Admit = admit.By(admission.New(admit.Limits(h.cfg.Sandboxes)))
	h.runner.Template = h.templateOf
	h.close = append(h.close, h.runner.Close)
	pins := map[string]*pkginstall.Pin{}
	for name, l := range h.lock.Servers {
		pins[name] = l.Package
	}
	h.packages = serverpackage.New(serverpackage.Options{
		State: h.state, Driver: h.drivers["namespace"], Egress: h.egresses(), Store: h.store, Clean: redact.Clean}, pins)
	said := slog.Default()
	if s.tells {
		said = nil
	}
	h.upstreams = upstream.New(h.cfg.Servers, upstream.Options{
		Launcher: h.launcher(), Remote: remoteDialer(h.state, h.cfg, h.secrets.Get, h.redact.Known).Options,
		Eras: eras.New(h.store, time.Now), Log: said, Lock: h.lock, Scrub: h.clean, Window: h.known.Window, Version: version,
		Changed: func(server string) { h.lives.inForce().catalogue.Invalidate(server) },
		Offers:  func(server string) { h.lives.inForce().catalogue.InvalidateOffer(server) },
		Updated: func(server, uri string) {
			if srv := h.lives.server.Load(); srv != nil {
				srv.Updated(server, uri)
			}
		},
	})
	h.close = append(h.close, h.upstreams.Close)
	return nil
}

// launcher returns the launcher of the configured servers.
func (h *application) launcher() *launch.Launcher {
	return &launch.Launcher{
		State: h.state, Config: h.cfg, Driver: h.drivers["namespace"], Egress: h.egresses(), Packages: h.packages,
		Secret: h.secrets.Get, Unchanged: func(s contract.Server) error { return trust.Unchanged(h.state, h.cfg, h.programs, s) }, Workspace: h.runner.Workspace,
		DataEnv: func(command []string) map[string]string {
			row, _ := wellknown.Find(command)
			return row.Data
		},
	}
}

func (h *application) openCorridor(s settings) error {
	sources, offers, plain := map[string]catalog.Source{}, map[string]catalog.OfferSource{}, ""
	for name, s := range h.cfg.Servers {
		sources[name] = func(ctx context.Context) ([]call.Tool, error) { return h.told(h.upstreams.Tools(ctx, name)) }
		offers[name] = func(ctx context.Context) (o catalog.Offer, err error) {
			o.Prompts, o.Resources, o.Templates, err = h.upstreams.Offer(ctx, name)
			return o, err
		}
		if s.Plain {
			plain = name
		}
	}
	o := catalog.Options{
		Builtins: catalog.Builtins(), Sources: sources, Offers: offers, Plain: plain, Visible: h.policy.Visible, Clean: h.clean, Epoch: h.known.Epoch,
		Names: h.policy.Names, Held: h.held,
		Of:       func(cap call.Capability) string { k, _ := h.policy.Lookup(cap); return k.Server },
		Patience: func(cap call.Capability) time.Duration { k, _ := h.policy.Lookup(cap); return k.Timeout },
		Usable:   func(cap call.Capability, v catalog.Viewer) bool { return h.policy.Usable(cap, v.Principal, v.Channel) },
	}
	if s.warm > 0 { // a gateway: its first list does not wait, and it logs left-out tools
		o.Kept = func(server string) []call.Tool {
			accepted, err := h.told(h.upstreams.Accepted(server), nil)
			if err != nil {
				return nil
			}
			return accepted
		}
		o.Missing = func(first catalog.Problem, n int) {
			slog.Warn("kept from agents: "+display.Count(n, "definition"), "server", first.Server, "code", first.Code, "first", leftOut(first), "why", h.clean(first.Text))
			if first.Code == "lock.new" {
				h.offerNew(context.Background(), first.Server)
				if door := h.lives.server.Load(); door != nil {
					door.NewTools(first.Capability, n)
				}
				slog.Warn("new definitions wait to be accepted", "server", first.Server, "hint", "waldo lock --show "+first.Server+", then waldo lock --accept "+first.Server)
			}
		}
	}
	h.catalogue = catalog.New(o)
	h.close = append(h.close, func() error { h.catalogue.Close(); return nil })
	h.broker = &broker.Broker{
		Policy:    h.policy,
		Record:    &audit.Recorder{Log: h.log, Args: h.redact.Args, Witness: h.witness},
		Approvals: h.approvals, Budget: h.sessions, Redact: h.redact,
		Executors: map[contract.Transport]broker.Executor{contract.SandboxedExec: h.runner, contract.MCP: h.upstreams},
	}
	bell, err := bridge.New(version, bridge.Pipeline{
		Call: h.shared,
		Refuse: func(ctx context.Context, c call.Call, why call.Reason) (call.Result, error) {
			return h.lives.inForce().broker.Refuse(ctx, c, why)
		},
		Tools: func(run call.Call) []call.Tool { return h.lives.inForce().tools(run) },
		Find:  func(run call.Call, name string) (call.Tool, bool) { return h.lives.inForce().find(run, name) },
		Search: func(run call.Call, words string, most int) []call.Tool {
			return h.lives.inForce().search(run, words, most)
		},
		Check: func(c call.Call, t call.Tool) *call.Reason { return h.lives.inForce().check(c, t) },
	})
	if err != nil {
		return err
	}
	h.runner.Doorbell = func(ctx context.Context, run call.Call, conn net.Conn) func() facts.SideEffect {
		return bell.Open(ctx, run, conn)
	}
	h.runner.Servers = func(run call.Call) []string {
		return slices.DeleteFunc(slices.Sorted(maps.Keys(h.cfg.Servers)), func(s string) bool { return !h.policy.Reaches(s, run.Principal, viewOf(run).Channel) })
	}
	return nil
}

// mode returns the class of a tool for hosts: the stricter of its contract and its server's annotations.
func (h *application) mode(cap call.Capability, annotations strictjson.Value) contract.Mode {
	k, _ := h.policy.Lookup(cap)
	return policy.Tighten(policy.Decision{Contract: k}, annotations).Mode()
}

// aside redacts a server message outside a result, according to the contract. A question to a person loses secrets
// only.
func (h *application) aside(c call.Call, v strictjson.Value, question bool) strictjson.Value {
	k, _ := h.policy.Lookup(c.Capability)
	if question {
		k.Redact = []string{"secrets"}
	}
	return h.redact.Aside(policy.Decision{Call: c, Contract: k}, v)
}

// clean sanitises text that a server wrote about itself. It removes invisible characters and known secrets, since a
// server can put an injected secret into a description.
func (h *application) clean(text string) string { return h.known.Text(redact.Clean(text)) }

// Close closes the services in reverse order of their opening, and the shared ones last.
func (h *application) Close() error {
	var errs []error
	if len(h.ground) > 0 {
		if h.approvals != nil {
			h.approvals.Told(notify.Wait)
		}
		if h.attendant != nil {
			h.attendant.Close()
		}
		errs = append(errs, h.lives.End())
	}
	errs = append(errs, h.retire())
	for _, c := range slices.Backward(h.ground) {
		errs = append(errs, c())
	}
	h.ground = nil
	return errors.Join(errs...)
}

// retire closes the services that this application does not share.
func (h *application) retire() error {
	var errs []error
	for _, c := range slices.Backward(h.close) {
		errs = append(errs, c())
	}
	h.close = nil
	return errors.Join(errs...)
}

// principal is the user that waldo runs as.
func principal() call.Principal { return call.Principal(fmt.Sprintf("os:%d", os.Getuid())) }

// open starts a session for the person or host at this channel.
func (h *application) open() (session.Info, error) {
	return h.sessions.Open(principal(), id.New(id.Workspace))
}

// cliBucket stores the session of `waldo call` for each user.
const cliBucket = "cli"

// openCLI opens the session that all `waldo call`s of this user share. The next process can then retry a call that
// waited for a human.
func (h *application) openCLI(ctx context.Context) (session.Info, error) {
	name := string(principal())
	if text, ok, err := h.store.Get(ctx, cliBucket, name); err != nil {
		return session.Info{}, err
	} else if n, w, found := strings.Cut(text, " "); ok && found && id.Is(id.Session, n) && id.Is(id.Workspace, w) {
		h.lasting = call.Session(n)
		return h.sessions.Resume(call.Session(n), principal(), w)
	}
	info, err := h.open()
	if err != nil {
		return info, err
	}
	h.lasting = info.ID
	return info, h.store.Put(ctx, cliBucket, name, string(info.ID)+" "+info.Workspace)
}

// workspace opens the workspace of a session, or the folder that the operator named.
func (h *application) workspace(n call.Session, keep string) (*workspace.Workspace, error) {
	if keep != "" {
		return workspace.OpenFolder(keep)
	}
	info, ok := h.sessions.Get(n)
	if !ok {
		return nil, fmt.Errorf("session %s is not open", n)
	}
	return h.pictured(workspace.Open(filepath.Join(h.state, "workspaces"), info.Workspace))
}

// spill writes the part of a result over its budget to the session's workspace. It fails if the sandbox limits leave
// no room.
func (h *application) spill(n call.Session, name string, data []byte) (string, error) {
	w, err := h.workspace(n, "")
	if err != nil {
		return "", err
	}
	defer w.Close()
	l := h.runner.Default
	room, err := w.Room(workspace.Output, workspace.Bounds{Bytes: l.Disk, Entries: int(l.Inodes)})
	if err = errors.Join(err, room.Take("spill/"+name, int64(len(data)))); err != nil {
		return "", err
	}
	return w.Spill(name, "txt", data)
}

// The catalogue as code in a sandbox sees it.

func (h *application) tools(run call.Call) []call.Tool {
	return plain(h.catalogue.List(context.Background(), viewOf(run)))
}

// viewOf returns the catalogue viewer for the code of a run.
func viewOf(run call.Call) catalog.Viewer {
	return catalog.Viewer{Principal: run.Principal, Channel: "bridge"}
}

func (h *application) find(_ call.Call, name string) (call.Tool, bool) {
	e, ok := h.catalogue.Lookup(context.Background(), name)
	if !ok {
		return call.Tool{}, false
	}
	return e.Tool, true
}

func (h *application) search(run call.Call, words string, most int) []call.Tool {
	return plain(h.catalogue.Search(context.Background(), viewOf(run), words, most))
}

func plain(entries []*catalog.Entry) []call.Tool {
	tools := make([]call.Tool, len(entries))
	for i, e := range entries {
		tools[i] = e.Tool
	}
	return tools
}

// check validates arguments against the schema of the tool. It returns nil if they are valid.
func (h *application) check(c call.Call, t call.Tool) *call.Reason {
	e, ok := h.catalogue.Lookup(context.Background(), string(t.Capability))
	if !ok {
		return nil // unknown tool: the policy decides
	}
	faults := e.Check(c.Args)
	if len(faults) == 0 || !h.catalogue.Shows(catalog.Viewer{Principal: c.Principal, Channel: c.Channel}, e) {
		return nil // hidden tool: the policy refuses, and the schema must not leak
	}
	text := make([]string, len(faults))
	for i, f := range faults {
		text[i] = f.String()
	}
	return &call.Reason{Code: "args.schema", Text: strings.Join(text, "; ")}
}

// askerOf returns the name of this process for a session that ends with it. Only the session of waldo call outlives
// it.
func (h *application) askerOf(n call.Session) string {
	if h.asker == nil || n == h.lasting {
		return ""
	}
	return h.asker.Name
}
