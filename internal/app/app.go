// Package app joins all packages for one configuration: New opens storage, core, executors and front ends. It reads no
// flag and prints nothing: commands, a console and webhooks are built on it.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"waldo/internal/app/configfile"
	"waldo/internal/app/control"
	"waldo/internal/app/fault"
	"waldo/internal/app/secrets"
	"waldo/internal/app/trust"
	"waldo/internal/budget"
	"waldo/internal/core/approval"
	"waldo/internal/core/approval/confirm"
	"waldo/internal/core/approval/notify"
	"waldo/internal/core/audit"
	"waldo/internal/core/broker"
	"waldo/internal/core/delegation"
	"waldo/internal/core/effects"
	"waldo/internal/core/policy"
	"waldo/internal/core/redact"
	"waldo/internal/core/session"
	"waldo/internal/executor/admit"
	"waldo/internal/executor/direct"
	"waldo/internal/executor/launch"
	"waldo/internal/executor/remote"
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
	"waldo/internal/model/id"
	"waldo/internal/model/secret"
	"waldo/internal/pkginstall"
	"waldo/internal/protocol/strictjson"
	"waldo/internal/sandbox"
	"waldo/internal/storage/database"
	"waldo/internal/storage/presence"
	"waldo/internal/storage/secretsource"
	"waldo/internal/storage/secretstore"
	"waldo/internal/storage/workspace"
)

// App joins all packages: storage, core, executors and front ends. openApplication builds it in that order,
// and Close closes it in reverse.
type App struct {
	State  string
	Config *contract.Config
	Policy *policy.Policy
	*Storage
	Sessions  *session.Manager
	Redact    *redact.Redactor
	secrets   *secretsource.Keeper
	known     *redact.Registry // the secrets that were fetched
	Approvals *approval.Service
	Lock      *lockfile.Lock                // as read when the application was opened
	relocked  atomic.Pointer[lockfile.Lock] // taken since; nil: none
	Witness   *audit.Witness                // the approvals in the log
	folder    string                        // the working folder of this process; empty: not known
	lasting   sync.Map                      // the sessions that another process can resume: call.Session to true
	Drivers   map[string]sandbox.Driver
	work      *budget.Gate // waldo's own memory for calls
	messages  *budget.Gate // and for long requests of code
	Runner    *runner.Runner
	Upstreams *upstream.Manager
	direct    direct.Executor
	Packages  *serverpackage.Packages // of servers; only `waldo lock --accept` pins a package
	Catalogue *catalog.Catalogue
	Broker    *broker.Broker
	Effects   *effects.Book            // calls that can have acted
	Delegated *delegation.Service      // holds calls to delegations
	live      *delegation.Live         // the calls under way under one
	attendant *control.Attendant       // carries out the operator's orders
	Logins    func() *identity.Options // who can connect over HTTP
	lives     *lives                   // the current application, and earlier ones
	Snapshot  string                   // the snapshot whose files a run starts with; empty: none
	running   []Running                // the features, opened for this configuration
	set       Options
	began     time.Time // before it read the configuration
	closers   closers
	shared    closers // closes the shared services; empty in later applications
}

// Options are the choices of a command for the application that it opens.
type Options struct {
	State   string            // the state directory, as the operator named it; empty: the usual one
	Source  configfile.Source // of the configuration
	Version string            // of waldo
	Known   *redact.Registry  // the secrets that were fetched; nil: a registry of its own
	Log     *slog.Logger      // of the gateway; nil: nothing is logged
	Cfg     *contract.Config  // nil: load the one of source
	// passphrase asks a person for that of a sealed file; nil: no person can answer.
	Passphrase func(what string) (secret.Value, error)
	// progress shows how much of a download is done; nil: nowhere.
	Progress  func(what string, bytes int64) io.WriteCloser
	Limits    sandbox.Limits // the most a run may ask for; zero: mostLimits
	Patience  time.Duration  // the shortest wait for a human before a call returns "waiting"
	Carriers  []approval.Notifier
	Workspace string    // a folder to use as the workspace; empty: the session's own
	Warm      int       // prewarmed sandboxes, for a long-running waldo; 0: none
	Sessions  int       // resident Pythons, for a long-running waldo; 0: none
	Tells     bool      // the command itself reports server faults
	Redact    bool      // redact terminal output as for the model
	Openers   []Opener  // of the features
	Tools     []Toolbox // of the features
	Relocks   bool      // the command can pin again if waldo.lock is missing
	// Delegation is the token that every call of this process is made under; nil: none. An empty one is refused.
	Delegation *string
	Prunes     bool             // the command has the first approver sign a removal
	Reloads    <-chan os.Signal // requests a reload; nil: no signal
	after      *App             // shares its store, log, sessions, approvals and pools; nil: none
}

// DefaultLimits apply to a run that requests no limits.
var DefaultLimits = sandbox.Limits{
	Wall: 30 * time.Second, CPU: 10 * time.Second, Memory: 512 << 20, Pids: 64, Files: 64,
	Disk: 256 << 20, Inodes: 20_000, Output: 200 << 10,
}

// MostLimits bound a run whose operator is the person at the terminal.
var MostLimits = sandbox.Limits{
	Wall: 24 * time.Hour, CPU: 24 * time.Hour, Memory: 1 << 40, Pids: 1 << 15, Files: 1 << 16,
	Disk: 1 << 40, Inodes: 10_000_000, Output: 1 << 30,
}

// bridgePatience is how long a call of a script at a terminal waits for a human.
const bridgePatience = 10 * time.Minute

// patience is how long a call of each channel waits for a human. An agent host cancels a call after about a minute
// and retries it, so it gets the shorter wait.
var patience = map[string]time.Duration{
	"mcp": 2 * time.Second, "bridge": 20 * time.Second, "webhook": bridgePatience, "e2b": 20 * time.Second,
}

// StateDir creates and checks the state directory, and returns its path.
func StateDir(flag string) (string, error) {
	dir, err := configfile.StateDir(flag)
	if err != nil {
		return "", err
	}
	dir, err = database.CheckDir(dir)
	if err != nil {
		return "", &fault.Error{Usage: true, Err: err, Tip: "give another with --state DIR"}
	}
	if err := runner.SweepKilled(dir); err != nil {
		slog.Warn("what killed runs have planted could not all be removed", "why", err)
	}
	return dir, nil
}

// New reads the configuration, then opens storage and core, the executors, and the pipeline.
func New(ctx context.Context, s Options) (h *App, err error) {
	h = &App{known: s.Known, set: s, began: time.Now()}
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
	if h.State, err = StateDir(s.State); err != nil {
		return h, err
	}
	if h.Config = s.Cfg; h.Config == nil {
		if h.Config, err = s.Source.Load(h.State); err != nil {
			return h, err
		}
		if faults := files.Here(h.State).Outside(h.Config); len(faults) > 0 {
			return h, &fault.Error{Usage: true, Err: faults[0], Tip: faults[0].Hint}
		}
	}
	if s.after != nil {
		h.share(s.after)
	} else {
		h.Drivers = Drivers(h.State, h.set.Progress)
		h.keepWarm(s.Warm)
	}
	if err = h.openCore(ctx, s); err != nil {
		return h, err
	}
	h.Delegated = &delegation.Service{Policy: h.Policy, Log: h.delegations(h.Witness), Live: h.live, Now: time.Now}
	h.openExecutors(s)
	if err = h.openPipeline(s); err != nil {
		return h, err
	}
	if err = h.enterDelegated(ctx); err != nil {
		return h, err
	}
	return h, h.openFeatures()
}

// machine describes this deployment to the policy: isolation levels, transports and secrets.
func (h *App) machine() policy.Machine {
	m := policy.Machine{
		Isolations: map[string]bool{},
		Transports: map[contract.Transport]bool{contract.Direct: true, contract.SandboxedExec: true, contract.MCP: true},
		Secrets:    secrets.Named(h.State, h.Config),
		Judge:      judge(open(h.set.Tools, Kit{})),
	}
	if h.Lock != nil {
		m.Annotations = func(server, tool string) (strictjson.Value, bool) {
			return h.Accepted().Annotations(server, tool)
		}
		m.Pinned = func(server string) bool { return len(h.Accepted().Servers[server].Tools) > 0 }
	}
	for level := range h.Drivers {
		m.Isolations[level] = true // each start checks the level again
	}
	return m
}

func (h *App) openCore(ctx context.Context, s Options) (err error) {
	if err = trust.PinsGone(h.State, h.Config); err != nil && !s.Relocks {
		return err
	}
	if err = h.readLock(); err != nil {
		return err
	}
	if h.Policy, err = policy.New(h.Config, h.machine()); err != nil {
		return &fault.Error{Usage: true, Err: err}
	}
	if s.after == nil {
		if err = h.openShared(ctx, s); err != nil {
			return err
		}
	}
	if h.Config.Store != "" && h.Config.Store != h.Store.URL() {
		return fault.Usage("waldo store migrate binds an empty state directory, waldo store copy brings its rows along; or name that "+
			"store in the file", "%s names the store %s, and the rows of %s are in %s", h.Config.StoreAt,
			h.Config.Store, h.State, h.Store.URL())
	}
	was, err := h.signed(ctx)
	if err != nil {
		return err
	}
	if was.Programs != nil {
		h.Config.Programs, h.Config.Log.Accepted = was.Programs, was.Policy
	}
	h.Logins = sync.OnceValue(func() *identity.Options { return entrance(h.Config.Gateway) })
	h.Redact = redact.New(h.Config.Redaction, h.known, h.Sessions)
	h.Redact.Spill, h.Redact.Terminal = h.spill, s.Redact
	h.secrets = secrets.New(h.State, h.Config, h.known, s.Passphrase)
	h.MarkWith(h.Config, h.secrets.Get)
	return nil
}

// openShared opens the services that survive a reload of the configuration.
func (h *App) openShared(ctx context.Context, s Options) (err error) {
	h.lives, h.work, h.messages = newLives(h), admit.Own(), admit.Messages()
	defer func() { h.shared, h.closers = h.closers, nil }()
	if h.Storage, err = OpenAtWork(ctx, h.State, segmentsFor(h.Config)); err != nil {
		return err
	}
	h.closers = append(h.closers, h.Storage.Close)
	h.Sessions = session.NewManager(session.Budgets(h.Config.Sessions), time.Now)
	h.folder, _ = os.Getwd()
	rates := &effects.Rates{Store: h.Store, Process: h.Process(), Gone: presence.Gone(h.Store), Now: time.Now}
	h.Sessions.Rates = rates
	h.Witness, h.live = &audit.Witness{Dir: audit.Dir(h.State)}, &delegation.Live{}
	h.Effects = &effects.Book{Store: h.Store, Process: h.Process(), Gone: presence.Gone(h.Store), Now: time.Now, Calls: h,
		Rates: rates, Log: &audit.Recorder{Log: h.Log, Witness: h.Witness}, Contract: h.lives.contract}
	h.shared = append(h.shared, h.finish)
	h.Approvals = &approval.Service{
		Store: h.Store, Calls: asking{h, s.Patience}, Carriers: append([]approval.Notifier{notify.New(h.lives.rules, h.prepare)},
			s.Carriers...),
		Gone:    presence.Gone(h.Store),
		Witness: h.Witness, Root: os.Getenv(RootVariable),
		Cosigner: h.lives,
	}
	h.Approvals.Records = desk(h.Log)
	if err := h.Approvals.Exchange(ctx); err != nil {
		return err
	}
	o := control.Options{Store: h.Store, Log: h.Log, Sessions: h.Sessions, By: string(Principal()),
		Reloads: s.Reloads, Ended: h.ended,
		Relock:  func(ctx context.Context, o control.Order) control.Reply { return h.lives.inForce().relock(ctx, o) },
		Revoked: func(ctx context.Context) int { return h.live.End(ctx, h.delegations(h.Witness), time.Now()) },
		Asker:   h.Process()}
	h.attendant, err = control.Attend(ctx, o)
	return err
}

// ended ends what a stopped session has in every application.
func (h *App) ended(n session.Info, begin func(end func())) {
	begin(func() {
		if err := h.Approvals.WithdrawSession(context.Background(), n.ID, "its session was stopped"); err != nil {
			slog.Warn("the questions of a stopped session stay open", "session", n.ID, "why", err)
		}
	})
	for _, h := range h.lives.All() {
		h.Upstreams.Forget(n.ID)
		begin(func() {
			if err := h.Runner.End(n.ID); err != nil {
				slog.Warn("ending a session", "session", n.ID, "why", err)
			}
		})
	}
}

// share shares the services of another application that survive a reload.
func (h *App) share(on *App) {
	h.lives, h.Drivers, h.Storage, h.Sessions, h.folder = on.lives, on.Drivers, on.Storage, on.Sessions, on.folder
	h.work, h.messages = on.work, on.messages
	h.Witness, h.Approvals, h.Effects, h.live = on.Witness, on.Approvals, on.Effects, on.live
}

func (h *App) openExecutors(s Options) {
	most := s.Limits
	if most == (sandbox.Limits{}) {
		most = DefaultLimits
		most.Wall, most.CPU = MostLimits.Wall, MostLimits.CPU // the contract's timeout bounds these
	}
	sandboxes := budget.New(admit.Limits(h.Config.Sandboxes))
	h.direct = open(s.Tools, Kit{State: h.State, Machine: h.opened(), Work: h.work, Redact: h.Redact,
		Questions: admit.NewQuestions(sandboxes), Egress: h.egresses(), Secret: h.secrets.Get})
	h.Runner = &runner.Runner{
		Drivers: h.Drivers, State: h.State, Machine: h.opened(), Warm: s.Warm > 0,
		Auto: contract.UsualIsolation, Default: DefaultLimits, Most: most,
		Sessions: s.Sessions, Means: means{h, s.Workspace}, Known: h.known, Sandboxes: sandboxes, Work: h.work,
		Commands: h.commands(),
	}
	h.Runner.Shares = slices.ContainsFunc(slices.Collect(maps.Values(h.Config.Servers)),
		func(s contract.Server) bool { return s.Placement == launch.InWorkspace })
	h.closers = append(h.closers, h.Runner.Close)
	pins := map[string]*pkginstall.Pin{}
	for name, l := range h.Lock.Servers {
		pins[name] = l.Package
	}
	h.Packages = serverpackage.New(serverpackage.Options{
		State: h.State, Driver: h.Drivers["namespace"], Egress: h.egresses(), Store: h.Store, Clean: redact.Clean}, pins)
	said := slog.Default()
	if s.Tells {
		said = nil
	}
	h.Upstreams = upstream.New(h.Config.Servers, upstream.Options{
		Launcher: h.launcher(), Remote: h.dialer().Options, Questions: h.lives, Seal: h.seal,
		Eras: eras.New(h.Store, time.Now), Log: said, Lock: h.Lock, Watcher: h.lives,
		Cleaner: cleaner{h, h.known}, Version: s.Version,
	})
	h.closers = append(h.closers, h.Upstreams.Close)
}

// cleaner takes secrets out of what the programs of servers write.
type cleaner struct {
	*App
	*redact.Registry
}

// prepare readies a command of the configuration in force that runs outside of sandboxes.
func (h *App) prepare(command []string) (argv []string, dir string, err error) {
	return trust.Prepare(h.State, h.lives.inForce().Config, command)
}

// launcher returns the launcher of the configured servers.
func (h *App) launcher() *launch.Launcher {
	return &launch.Launcher{
		State: h.State, Config: h.Config, Drivers: h.Drivers, Egress: h.egresses(), Packages: h.Packages,
		Secret: h.secrets.Get, Unchanged: func(s contract.Server) error {
			return trust.Unchanged(h.State, h.Config, s)
		}, Workspace: h.Runner.Means.Workspace,
	}
}

func (h *App) openPipeline(s Options) error {
	sources, offers, plain := map[string]catalog.Source{}, map[string]catalog.OfferSource{}, ""
	for name, s := range h.Config.Servers {
		sources[name] = func(ctx context.Context) ([]call.Tool, error) { return h.Upstreams.Tools(ctx, name) }
		offers[name] = func(ctx context.Context) (o catalog.Offer, err error) {
			o.Prompts, o.Resources, o.Templates, err = h.Upstreams.Offer(ctx, name)
			return o, err
		}
		if s.Plain {
			plain = name
		}
	}
	h.Catalogue = catalog.New(catalog.Options{
		Builtins: slices.Concat(catalog.Builtins(), h.ownTools()), Sources: sources, Offers: offers, Plain: plain,
		Contracts: contracts{h}, Texts: texts{h}, Pins: pins{h, s.Warm > 0},
		Over: func() bool { return h.Delegated.Ended(context.Background(), h.Caller(), nil) },
	})
	h.closers = append(h.closers, func() error { h.Catalogue.Close(); return nil })
	h.Broker = &broker.Broker{
		Policy: h.Policy, Delegated: h.Delegated,
		Record:    &audit.Recorder{Log: h.Log, Args: h.Redact.Args, Witness: h.Witness, Place: h.placeOf},
		Confirms:  &confirm.Confirmer{Store: h.Store, Questions: h.Approvals},
		Approvals: h.Approvals, Budget: h.Sessions, Redact: h.Redact, Effects: h.Effects,
		Executors: map[contract.Transport]broker.Executor{contract.SandboxedExec: h.Runner, contract.MCP: h.Upstreams,
			contract.Direct: h.direct},
	}
	h.Broker.Held = heldCalls{h}
	if s.after != nil {
		h.Broker.Observer = s.after.Broker.Observer
	}
	h.Runner.Bridge = bridge.New(s.Version, fromCode{h.lives}, h.messages)
	h.Runner.Programs = suspendedPrograms{h}
	return nil
}

// Clean sanitises text that a server wrote about itself, as a result of it would be.
func (h *App) Clean(text string) string { return h.Redact.Definition(text) }

// finish waits for outcomes that could not be recorded yet. Those that still cannot be are for the next waldo.
func (h *App) finish() error {
	if !h.Effects.Finish(3 * time.Second) {
		h.present.Leave()
	}
	return nil
}

// Close closes the services in reverse order of their opening, and the shared ones last.
func (h *App) Close() error {
	var errs []error
	if len(h.shared) > 0 {
		if h.Approvals != nil {
			h.Approvals.Told(notify.Wait)
		}
		if h.attendant != nil {
			h.attendant.Close()
		}
		errs = append(errs, h.lives.End())
	}
	errs = append(errs, h.retire(), h.shared.close())
	return errors.Join(errs...)
}

// retire closes the services that this application does not share.
func (h *App) retire() error { return h.closers.close() }

// Version is that of waldo.
func (h *App) Version() string { return h.set.Version }

// Principal is the user that waldo runs as.
func Principal() call.Principal { return call.Principal(fmt.Sprintf("os:%d", os.Getuid())) }

// Caller returns the user that waldo runs as, in its tenant.
func (h *App) Caller() call.Principal { return h.Config.Gateway.Tenants.Of(Principal()) }

// OpenSession starts a session for the person or host at this channel.
func (h *App) OpenSession() (session.Info, error) {
	return h.Sessions.Open(h.Caller(), id.New(id.Workspace))
}

// cliBucket stores the session of `waldo call` for each user.
const cliBucket = "cli"

// OpenCLI opens the session that all `waldo call`s of this user share. The next process can then retry a call that
// waited for a human.
func (h *App) OpenCLI(ctx context.Context) (session.Info, error) {
	name := string(h.Caller())
	if text, ok, err := h.Store.Get(ctx, cliBucket, name); err != nil {
		return session.Info{}, err
	} else if n, w, found := strings.Cut(text, " "); ok && found && id.Is(id.Session, n) && id.Is(id.Workspace, w) {
		h.Lasting(call.Session(n))
		return h.Sessions.Resume(call.Session(n), h.Caller(), w)
	}
	info, err := h.OpenSession()
	if err != nil {
		return info, err
	}
	h.Lasting(info.ID)
	return info, h.Store.Put(ctx, cliBucket, name, string(info.ID)+" "+info.Workspace)
}

// placeOf returns where a session is; one that is not open has no workspace.
func (h *App) placeOf(n call.Session) audit.Place {
	info, _ := h.Sessions.Get(n)
	at := audit.Place{Workspace: info.Workspace, Asker: h.askerOf(n), Process: h.Process()}
	if at.Asker != "" || !h.Serves() {
		at.Folder = h.folder
	}
	return at
}

// workspace opens the workspace of a session, or the folder that the operator named.
func (h *App) workspace(n call.Session, keep string) (*workspace.Workspace, error) {
	if keep != "" {
		return workspace.OpenFolder(keep)
	}
	info, ok := h.Sessions.Get(n)
	if !ok {
		return nil, fmt.Errorf("session %s is not open", n)
	}
	return h.fill(workspace.Open(filepath.Join(h.State, "workspaces"), info.Workspace))
}

var fileEnding = regexp.MustCompile(`^[a-z]{1,8}$`)

// spill stores the part of a result over its budget in the session's workspace, and returns its name for read_output.
func (h *App) spill(n call.Session, name string, data []byte) (string, error) {
	w, err := h.workspace(n, "")
	if err != nil {
		return "", err
	}
	defer w.Close()
	ending := strings.ToLower(strings.TrimPrefix(path.Ext(name), "."))
	if !fileEnding.MatchString(ending) {
		ending = "txt"
	}
	at, err := w.Spill(strings.TrimSuffix(name, path.Ext(name)), ending, data)
	return string(workspace.Spill) + "/" + at, err
}

// Check validates arguments against the schema of the tool. It returns nil if they are valid.
func (h *App) Check(c call.Call, t call.Tool) *call.Reason {
	e, ok := h.Catalogue.Lookup(context.Background(), string(t.Capability))
	if !ok {
		return h.unlisted(c)
	}
	faults := e.Check(c.Args)
	if len(faults) == 0 || !h.Catalogue.Shows(catalog.Viewer{Principal: c.Principal, Channel: c.Channel}, e) {
		return nil // hidden tool: the policy refuses, and the schema must not leak
	}
	text := make([]string, len(faults))
	for i, f := range faults {
		text[i] = f.String()
	}
	return &call.Reason{Code: "args.schema", Text: strings.Join(text, "; ")}
}

// Lasting marks a session that another process can resume.
func (h *App) Lasting(n call.Session) { h.lasting.Store(n, true) }

// askerOf returns the name of this process for a session that ends with it. The session of waldo call and those of
// agents outlive it.
func (h *App) askerOf(n call.Session) string {
	if _, outlives := h.lasting.Load(n); outlives {
		return ""
	}
	return h.Process()
}

// dialer connects to the configured servers at a url.
func (h *App) dialer() *remote.Dialer {
	return RemoteDialer(h.State, h.Config, h.secrets.Get, h.Redact.Known)
}

// RemoteDialer connects to servers at a url.
func RemoteDialer(
	state string, cfg *contract.Config, get func(secret.Ref) (secret.Value, error), known *redact.Registry,
) *remote.Dialer {
	return &remote.Dialer{
		Internal: cfg.Internal, Secret: get, Safe: func() *secretstore.Store { return secrets.Open(state) },
		Learned: known.Add,
	}
}

// RootVariable names the variable that holds the fingerprint of the first approver, besides approval.root.
const RootVariable = "WALDO_APPROVER_ROOT"

// desk returns what an approval service of this user writes to a log.
func desk(log *audit.Log) audit.Desk {
	return audit.Desk{Recorder: &audit.Recorder{Log: log}, User: Principal()}
}

// LeftOut quotes and shortens a name that a server chose, since it can contain control characters.
func LeftOut(p catalog.Problem) string {
	name := cmp.Or(string(p.Capability), p.Server)
	switch {
	case p.Code == catalog.OffersUnavailable || p.Code == catalog.OffersSlow:
		return "what " + name + " offers beside tools"
	case p.Item != "":
		return fmt.Sprintf("%s %+.200q", name, p.Item)
	case !catalog.Named(name):
		return fmt.Sprintf("%+.200q", name)
	}
	return name
}
