// Package serverpackage pins the packages of servers that npx, uvx and pipx start. It installs them in a sandbox that
// reaches the registry alone, and returns the installed server's command.
package serverpackage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	stdnet "net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"waldo/internal/executor/sandboxegress"
	"waldo/internal/executor/upstream/diff"
	"waldo/internal/executor/upstream/lockfile"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/pkginstall"
	"waldo/internal/sandbox"
)

// Options are what installing needs of the application.
type Options struct {
	State  string                   // the state directory
	Driver sandbox.Driver           // makes the sandboxes that packages are unpacked in
	Egress *sandboxegress.Assembler // gives them their registry
	Store  Store                    // remembers when a registry was asked
	Clean  func(string) string      // makes the output of a package manager safe to print
}

// Store stores small texts by bucket and key.
type Store interface {
	Get(ctx context.Context, bucket, key string) (text string, ok bool, err error)
	Put(ctx context.Context, bucket, key, text string) error
}

// Packages are the packages of one configuration's servers.
type Packages struct {
	Options
	Fresh bool // ask the registries, also those that were asked within the hour

	mu   sync.Mutex // several servers are inspected at a time
	pins map[string]*pkginstall.Pin
}

// New returns the packages of servers with the pins that were accepted, by server.
func New(o Options, pins map[string]*pkginstall.Pin) *Packages {
	return &Packages{Options: o, pins: pins}
}

// Accepted returns every pin.
func (p *Packages) Accepted() []*pkginstall.Pin {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(p.pins)), func(p *pkginstall.Pin) bool { return p == nil })
}

// showing returns mounts of folders, and of programs outside of them and of /usr.
func showing(folders []string, programs ...string) []sandbox.Mount {
	var mounts []sandbox.Mount
	for _, f := range folders {
		mounts = append(mounts, sandbox.Mount{Source: f, Target: f})
	}
	for _, p := range programs {
		within := func(dir string) bool { return contract.Within(p, dir) }
		if filepath.IsAbs(p) && !slices.ContainsFunc(append([]string{"/usr", "/bin"}, folders...), within) {
			mounts = append(mounts, sandbox.Mount{Source: p, Target: p})
		}
	}
	return mounts
}

// At is the folder of a sandbox that holds the server's installed package, read-only.
const At = "/opt/server"

// Wanted returns the package that a server's command names; ok is false if no installation is needed. Outside a
// sandbox the command runs as written.
func Wanted(s contract.Server) (w pkginstall.Wanted, ok bool, err error) {
	if s.URL != "" || s.Placement == "outside" {
		return w, false, nil
	}
	if w, ok, err = pkginstall.Parse(s.Command); err != nil {
		err = fmt.Errorf("server %s: %w", s.Name, err)
	}
	return w, ok, err
}

// RefuseFetching refuses a program that fetches what it runs, in a sandbox without a network.
func RefuseFetching(s contract.Server) error {
	if len(s.Command) == 0 || s.Placement == "outside" || len(s.Network.Allow) > 0 || s.Network.Internal {
		return nil
	}
	switch program := filepath.Base(s.Command[0]); program {
	case "uv", "pipx", "bunx", "pnpx":
		return fmt.Errorf("server %s: %s fetches what it runs at each start, and this sandbox has no network: "+
			"waldo installs packages of npx, uvx and pipx run; install it yourself and name the installed program in command",
			s.Name, program)
	}
	return nil
}

// Unpinned warns of commands in a sandbox that waldo cannot parse, so that it does not install and pin their package.
func Unpinned(cfg *contract.Config) []contract.Problem {
	var out []contract.Problem
	for _, name := range slices.Sorted(maps.Keys(cfg.Servers)) {
		s := cfg.Servers[name]
		if len(s.Command) == 0 || s.Placement == "outside" {
			continue
		}
		warn := func(text, hint string) {
			out = append(out, contract.Problem{
				At: s.CommandAt, Code: "server.package", Text: "server " + name + ": " + text, Hint: hint,
			})
		}
		if _, _, err := pkginstall.Parse(s.Command); err != nil {
			warn(err.Error()+"; it is not installed, and the server does not start",
				"as in [npx, -y, NAME@VERSION] or [uvx, NAME==VERSION]; options of the program stand behind the package")
		}
	}
	contract.Problems(out).Sort()
	return out
}

// Installer returns what installs the package of one server.
func (p *Packages) Installer(
	ctx context.Context, s contract.Server, w pkginstall.Wanted,
) (i *pkginstall.Installer, err error) {
	i = &pkginstall.Installer{
		Dir: filepath.Join(p.State, "packages"), Config: p.npmConfig,
		Run: func(ctx context.Context, j pkginstall.Job) error { return p.runJob(ctx, s, j) },
	}
	if w.Manager == pkginstall.PyPI {
		i.Python, err = p.python(ctx, w.Python)
		return i, err
	}
	i.Npm = make([]string, 2)
	for n, name := range []string{"node", "npm"} {
		if i.Npm[n], err = tool(name); err != nil {
			return nil, err
		}
	}
	return i, nil
}

// tool finds a program of this machine and follows its links.
func tool(name string) (string, error) {
	at, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is not on this machine, and the package needs it", name)
	}
	return filepath.EvalSymlinks(at)
}

// npmConfig reads npm's configuration of this machine and user. It ignores the current folder, which can belong to
// someone else.
func (p *Packages) npmConfig(ctx context.Context, key string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, "npm", "config", "get", key)
	c.Dir = p.State
	out, err := c.Output()
	if err != nil { // Ctrl-C at a terminal ends npm, too, and can reach it first
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return strings.TrimSpace(string(out)), err
}

// installLimits bound the sandbox that a package is unpacked in.
var installLimits = sandbox.Limits{
	Wall: 10 * time.Minute, CPU: 10 * time.Minute, Memory: 3 << 30, Pids: 256, Files: 4096,
	Disk: 1 << 30, Inodes: 200_000, Output: 64 << 10,
}

// runJob runs a job in a sandbox that can read from the registry and reaches nothing else. The sandbox gets no secret
// and no configuration of this machine.
func (p *Packages) runJob(ctx context.Context, s contract.Server, j pkginstall.Job) error {
	l := installLimits
	profile := sandbox.Profile{
		ID: id.New(id.Sandbox), Template: sandbox.Template{Name: "host"}, Mounts: showing(j.Show, j.Argv[0]), Limits: l,
		Tmpfs: []sandbox.Tmpfs{
			{Target: pkginstall.Place, Bytes: l.Disk, Inodes: l.Inodes, Export: true, Seed: j.Seed},
			{Target: "/workspace/tmp", Bytes: l.Disk, Inodes: l.Inodes},
			{Target: "/tmp", Bytes: l.Disk, Inodes: l.Inodes},
		},
	}
	net, err := p.Egress.ForLines(j.Reach, contract.Network{Internal: true}, nil)
	if err != nil {
		return err
	}
	// Every request uses the proxy: a registry of this machine is called localhost, and a sandbox has its own
	// localhost.
	proxy := fmt.Sprintf("http://%s:%d", sandbox.Gateway, sandbox.ProxyPort)
	env := append(net.Open(&profile), "HTTP_PROXY="+proxy, "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/workspace/tmp",
		"TMPDIR=/workspace/tmp", "LANG=C.UTF-8")
	env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, "NO_PROXY=") })
	sb, err := net.Start(ctx, p.Driver, profile)
	if err != nil {
		return errors.Join(err, net.End())
	}
	f, err := sb.Run(ctx, sandbox.Command{Argv: j.Argv, Env: slices.Concat(env, j.Env), Dir: pkginstall.Place})
	if err == nil && (f.Status != facts.OK || f.ExitCode == nil || *f.ExitCode != 0) {
		err = fmt.Errorf("%s: %.600s", f.Status, p.Clean(strings.TrimSpace(f.Stdout+f.Stderr)))
	}
	if err == nil {
		_, err = sb.Export(pkginstall.Place, j.Out)
	}
	reached := facts.New()
	p.Egress.Reached(s.Name, profile.ID, net, &reached)
	if err != nil {
		err = refusedOf(ctx, err, reached.Network.Attempts)
	}
	return errors.Join(err, sb.Close(), net.End())
}

// addressOf returns the address that the name has here, for a hint.
func addressOf(ctx context.Context, host string) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if found, err := stdnet.DefaultResolver.LookupHost(ctx, host); err == nil && len(found) > 0 {
		return found[0]
	}
	return "10.0.0.7"
}

// refusedOf adds to a program's error which egress rule refused its request.
func refusedOf(ctx context.Context, err error, tried []facts.Attempt) error {
	for _, a := range tried {
		switch at := fmt.Sprintf("%s:%d", a.Host, a.Port); {
		case a.Why == "":
		case a.Why == "egress.address":
			return fmt.Errorf("%w\n%s: %w: its name stands for an address that is not public, or not among its addresses (%s); "+
				"if it is a registry that you trust at this address, write in waldo.yaml: addresses: {%s: [%s]}", err, at,
				pkginstall.ErrUnreached, a.Why, a.Host, addressOf(ctx, a.Host))
		case a.Allowed:
			return fmt.Errorf("%w\n%s: %w (%s)", err, at, pkginstall.ErrUnreached, a.Why)
		default:
			return fmt.Errorf("%w\n%s: %w: it is not the registry (%s)", err, at, pkginstall.ErrUnreached, a.Why)
		}
	}
	return err
}

// Open returns the command of a server whose package is pinned, and the mounts of its sandbox: the folders of the
// interpreter first, the package last.
func (p *Packages) Open(
	ctx context.Context, s contract.Server, w pkginstall.Wanted,
) ([]string, []sandbox.Mount, error) {
	pin := p.Pin(s.Name)
	if pin == nil {
		return nil, nil,
			fmt.Errorf("server %s: the package %s %w: waldo lock --accept %s", s.Name, w.Spec, pkginstall.ErrNotAccepted, s.Name)
	}
	in, err := p.Installer(ctx, s, w)
	if err != nil {
		return nil, nil, fmt.Errorf("server %s: %w", s.Name, err)
	}
	dir, argv, err := in.Open(ctx, pin, w, At)
	if errors.Is(err, pkginstall.ErrPin) {
		err = fmt.Errorf("%w; look with waldo lock, install it anew with waldo lock --accept %s", err, s.Name)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("server %s: %w", s.Name, err)
	}
	mounts := showing(in.Shows(), argv[0])
	return argv, append(mounts, sandbox.Mount{Source: dir, Target: At}), nil
}

// Pin returns the accepted package of a server; nil if not accepted.
func (p *Packages) Pin(server string) *pkginstall.Pin {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pins[server]
}

func (p *Packages) setPin(server string, pin *pkginstall.Pin) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pins[server] = pin
}

// sameAsPinned reports whether the registry still has the accepted package of a server.
func (p *Packages) sameAsPinned(ctx context.Context, s contract.Server, w pkginstall.Wanted) bool {
	pin := p.Pin(s.Name)
	if pin == nil || !pin.Is(w) {
		return false
	}
	in, err := p.Installer(ctx, s, w)
	if err != nil {
		return false
	}
	if _, _, err := in.Open(ctx, pin, w, At); err != nil {
		return false // its files differ from the pin
	}
	now, err := in.Resolve(ctx, w)
	return err == nil && now.Lock.Digest() == pin.Lock.Digest()
}

// askedAgain is how long a registry's answer about a package is used again.
const askedAgain = time.Hour

// resolved is the bucket with the time at which the registry last had a pinned package, by the digest of the pin.
const resolved = "registry"

// Accept installs the package of a server as its registry has it now, and pins it.
func (p *Packages) Accept(ctx context.Context, s contract.Server, w pkginstall.Wanted) error {
	in, err := p.Installer(ctx, s, w)
	if err != nil {
		return err
	}
	pin, err := in.Accept(ctx, w)
	if err != nil {
		return fmt.Errorf("%s: %w", w.Spec, err)
	}
	p.setPin(s.Name, pin)
	return nil
}

// compare returns how the registry's package of today differs from the accepted one.
func (p *Packages) compare(ctx context.Context, s contract.Server, w pkginstall.Wanted) ([]lockfile.Change, error) {
	pin := p.Pin(s.Name)
	change := lockfile.Change{Server: s.Name, Code: "lock.package"}
	if !pin.Is(w) {
		change.Text = fmt.Sprintf("the command names %s and %s was accepted; it is not started", w.Spec, pin.Spec)
		return []lockfile.Change{change}, nil
	}
	if at, ok, err := p.Store.Get(ctx, resolved, pin.Lock.Digest()); err == nil && ok && !p.Fresh {
		if t, err := time.Parse(time.RFC3339, at); err == nil && time.Since(t) < askedAgain && time.Since(t) >= 0 {
			return nil, nil
		}
	}
	in, err := p.Installer(ctx, s, w)
	if err != nil {
		return nil, err
	}
	now, err := in.Resolve(ctx, w)
	if err == nil && now.Lock.Digest() == pin.Lock.Digest() {
		return nil, p.Store.Put(ctx, resolved, pin.Lock.Digest(), time.Now().UTC().Format(time.RFC3339))
	}
	if err != nil {
		return nil, err
	}
	change.Text = fmt.Sprintf("the registry has %s %s with other packages than were accepted (%s); "+
		"the accepted ones run on", w.Name, now.Version, pin.Version)
	change.Diff = diff.Lines(pin.Lock, now.Lock)
	return []lockfile.Change{change}, nil
}

// Lock compares the package of a server with its pin, or pins it. unseen: the server cannot be started, so its tools
// are unknown.
func (p *Packages) Lock(
	ctx context.Context, s contract.Server, accept bool,
) (changes []lockfile.Change, unseen bool, err error) {
	w, ok, err := Wanted(s)
	switch {
	case err != nil || !ok:
		return nil, false, err
	case accept && p.sameAsPinned(ctx, s, w):
		return nil, false, nil // installed as it is accepted: another line of its entry has changed
	case accept:
		return nil, false, p.Accept(ctx, s, w)
	case p.Pin(s.Name) == nil:
		text := fmt.Sprintf("not locked. To look at its package %s before you install and pin it: waldo lock --show %s",
			w.Spec, s.Name)
		return []lockfile.Change{{Server: s.Name, Code: "lock.absent", Text: text}}, true, nil
	}
	changes, err = p.compare(ctx, s, w)
	return changes, !p.Pin(s.Name).Is(w), err
}
