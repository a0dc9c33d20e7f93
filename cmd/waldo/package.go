package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"waldo/internal/core/redact"
	"waldo/internal/executor/upstream"
	"waldo/internal/executor/upstream/diff"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/pkginstall"
	"waldo/internal/sandbox"
)

// packageAt is where the box of a server has its installed package, read-only.
const packageAt = "/opt/server"

// wanted returns the package that a server's command names; ok is false for one that needs none
// installed. Outside a box the command is run as it is written.
func wanted(s contract.Server) (w pkginstall.Wanted, ok bool, err error) {
	if s.URL != "" || s.Placement == "outside" {
		return w, false, nil
	}
	if w, ok, err = pkginstall.Parse(s.Command); err != nil {
		err = fmt.Errorf("server %s: %w", s.Name, err)
	}
	return w, ok, err
}

// fetches refuses a program that would fetch what it runs from a box that reaches nothing.
func fetches(s contract.Server) error {
	if len(s.Command) == 0 || s.Placement == "outside" || len(s.Network.Allow) > 0 || s.Network.Internal {
		return nil
	}
	switch program := filepath.Base(s.Command[0]); program {
	case "uv", "pipx", "bunx", "pnpx":
		return fmt.Errorf("server %s: %s fetches what it runs at each start, and this box has no network: waldo installs packages of npx, uvx and pipx run; install it yourself and name the installed program in command", s.Name, program)
	}
	return nil
}

// unsealed warns of commands in a box whose package waldo does not install and pin: those that it does not
// understand, and those that fetch what they run at each start, or have another program do it.
func unsealed(cfg *contract.Config) []contract.Problem {
	var out []contract.Problem
	for _, name := range slices.Sorted(maps.Keys(cfg.Servers)) {
		s := cfg.Servers[name]
		if len(s.Command) == 0 || s.Placement == "outside" {
			continue
		}
		warn := func(text, hint string) {
			out = append(out, contract.Problem{At: s.CommandAt, Code: "server.package", Text: "server " + name + ": " + text, Hint: hint})
		}
		if _, ok, err := pkginstall.Parse(s.Command); err != nil {
			warn(err.Error()+"; it is not installed, and the server does not start", "as in [npx, -y, NAME@VERSION] or [uvx, NAME==VERSION]; options of the program stand behind the package")
			continue
		} else if ok {
			continue
		}
		switch program, behind := files.Fetcher(s.Command); {
		case program != "" && !behind:
			warn(program+" fetches what it runs at each start, and nothing pins it", "use npx, uvx or pipx run, which waldo installs once and pins, or name a program that is installed")
		case program != "":
			warn(fmt.Sprintf("%s stands behind %s: what it fetches at each start is not pinned", program, filepath.Base(s.Command[0])), "let the command begin with npx, uvx or pipx run, which waldo installs once and pins, and write its variables under env")
		}
	}
	contract.Problems(out).Sort()
	return out
}

// installer installs the package of one server.
func (h *house) installer(ctx context.Context, s contract.Server, w pkginstall.Wanted) (i *pkginstall.Installer, err error) {
	i = &pkginstall.Installer{
		Dir: filepath.Join(h.state, "packages"), Config: h.npmConfig,
		Run: func(ctx context.Context, j pkginstall.Job) error { return h.installBox(ctx, s, j) },
	}
	if w.Manager == pkginstall.PyPI {
		i.Python, err = h.python(ctx, w.Python)
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

// tool finds a program of this machine, behind its links.
func tool(name string) (string, error) {
	at, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is not on this machine, and the package needs it", name)
	}
	return filepath.EvalSymlinks(at)
}

// npmConfig reads npm's configuration of this machine and user; not that of the folder it is called
// in, which may be somebody else's.
func (h *house) npmConfig(ctx context.Context, key string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, "npm", "config", "get", key)
	c.Dir = h.state
	out, err := c.Output()
	return strings.TrimSpace(string(out)), err
}

// installLimits hold the box that a package is unpacked in.
var installLimits = sandbox.Limits{
	Wall: 10 * time.Minute, CPU: 10 * time.Minute, Memory: 3 << 30, Pids: 256, Files: 4096,
	Disk: 1 << 30, Inodes: 200_000, Output: 64 << 10,
}

// installBox runs a job in a box that reaches the registry to read, and nothing else. It gets no
// secret and no configuration of this machine.
func (h *house) installBox(ctx context.Context, s contract.Server, j pkginstall.Job) error {
	l := installLimits
	p := sandbox.Profile{
		ID: id.New(id.Sandbox), Template: sandbox.Template{Name: "host"}, Mounts: showing(j.Show, j.Argv[0]), Limits: l,
		Tmpfs: []sandbox.Tmpfs{
			{Target: pkginstall.Place, Bytes: l.Disk, Inodes: l.Inodes, Export: true, Seed: j.Seed},
			{Target: "/workspace/tmp", Bytes: l.Disk, Inodes: l.Inodes},
			{Target: "/tmp", Bytes: l.Disk, Inodes: l.Inodes},
		},
	}
	way, err := h.egresses().ForLines(j.Reach, contract.Network{Internal: true}, nil)
	if err != nil {
		return err
	}
	// All goes through the proxy: a registry of this machine is called localhost, and a box has its own.
	proxy := fmt.Sprintf("http://%s:%d", sandbox.Gateway, sandbox.ProxyPort)
	env := append(way.Open(&p), "HTTP_PROXY="+proxy, "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/workspace/tmp", "TMPDIR=/workspace/tmp", "LANG=C.UTF-8")
	env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, "NO_PROXY=") })
	box, err := way.Start(ctx, h.drivers["namespace"], p)
	if err != nil {
		return errors.Join(err, way.End())
	}
	f, err := box.Run(ctx, sandbox.Command{Argv: j.Argv, Env: slices.Concat(env, j.Env), Dir: pkginstall.Place})
	if err == nil && (f.Status != facts.OK || f.ExitCode == nil || *f.ExitCode != 0) {
		err = fmt.Errorf("%s: %.600s", f.Status, redact.Clean(strings.TrimSpace(f.Stdout+f.Stderr)))
	}
	if err == nil {
		_, err = box.Export(pkginstall.Place, j.Out)
	}
	tried := h.egresses().Reached(s.Name, p.ID, way)
	if err != nil {
		err = refusedOf(err, tried)
	}
	return errors.Join(err, box.Close(), way.End())
}

// refusedOf adds to what a program says of a way that was closed to it what closed it.
func refusedOf(err error, tried []facts.Attempt) error {
	for _, a := range tried {
		switch at := fmt.Sprintf("%s:%d", a.Host, a.Port); {
		case a.Why == "":
		case a.Why == "egress.address":
			return fmt.Errorf("%w\n%s: %w: its name stands for an address that is not public, or not among its addresses (%s); where it is a registry of yours, say where it stands in waldo.yaml: addresses: {%s: [10.0.0.7]}", err, at, pkginstall.ErrUnreached, a.Why, a.Host)
		case a.Allowed:
			return fmt.Errorf("%w\n%s: %w (%s)", err, at, pkginstall.ErrUnreached, a.Why)
		default:
			return fmt.Errorf("%w\n%s: %w: it is not the registry (%s)", err, at, pkginstall.ErrUnreached, a.Why)
		}
	}
	return err
}

// packaged returns how a server is started whose package is pinned, and what its box is shown of it.
func (h *house) packaged(ctx context.Context, s contract.Server, w pkginstall.Wanted) ([]string, []sandbox.Mount, error) {
	pin := h.pinOf(s.Name)
	if pin == nil {
		return nil, nil, fmt.Errorf("server %s: the package %s was never accepted, so it is not installed: waldo lock --accept %s", s.Name, w.Spec, s.Name)
	}
	in, err := h.installer(ctx, s, w)
	if err != nil {
		return nil, nil, fmt.Errorf("server %s: %w", s.Name, err)
	}
	dir, argv, err := in.Open(ctx, pin, w, packageAt)
	if errors.Is(err, pkginstall.ErrPin) {
		err = fmt.Errorf("%w; look with waldo lock, install it anew with waldo lock --accept %s", err, s.Name)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("server %s: %w", s.Name, err)
	}
	_, shown, err := h.shown(s, true)
	if err != nil {
		return nil, nil, err
	}
	mounts := append(showing(in.Shows(), argv[0]), boxed(shown)...)
	return argv, append(mounts, sandbox.Mount{Source: dir, Target: packageAt}), nil
}

// pinOf is the accepted package of a server; nil: none.
func (h *house) pinOf(server string) *pkginstall.Pin {
	h.pinsMu.Lock()
	defer h.pinsMu.Unlock()
	return h.pins[server]
}

func (h *house) setPin(server string, p *pkginstall.Pin) {
	h.pinsMu.Lock()
	defer h.pinsMu.Unlock()
	h.pins[server] = p
}

// sameAsPinned reports whether the registry has what is accepted of a server's package already.
func (h *house) sameAsPinned(ctx context.Context, s contract.Server, w pkginstall.Wanted) bool {
	pin := h.pinOf(s.Name)
	if pin == nil || !pin.Is(w) {
		return false
	}
	in, err := h.installer(ctx, s, w)
	if err != nil {
		return false
	}
	if _, _, err := in.Open(ctx, pin, w, packageAt); err != nil {
		return false // its files are other than were pinned
	}
	now, err := in.Resolve(ctx, w)
	return err == nil && now.Lock.Digest() == pin.Lock.Digest()
}

// askedAgain is how long the registry's answer on a package is taken for today's.
const askedAgain = time.Hour

// resolved is the bucket of when the registry last had what is pinned, by the digest of the pin.
const resolved = "registry"

// acceptPackage installs the package of a server as its registry has it now.
func (h *house) acceptPackage(ctx context.Context, s contract.Server, w pkginstall.Wanted) error {
	in, err := h.installer(ctx, s, w)
	if err != nil {
		return err
	}
	pin, err := in.Accept(ctx, w)
	if err != nil {
		return fmt.Errorf("%s: %w", w.Spec, err)
	}
	h.setPin(s.Name, pin)
	return nil
}

// comparePackage says how what a registry would give today differs from what was accepted.
func (h *house) comparePackage(ctx context.Context, s contract.Server, w pkginstall.Wanted) ([]upstream.Change, error) {
	pin := h.pinOf(s.Name)
	change := upstream.Change{Server: s.Name, Code: "lock.package"}
	if !pin.Is(w) {
		change.Text = fmt.Sprintf("the command names %s and %s was accepted; it is not started", w.Spec, pin.Spec)
		return []upstream.Change{change}, nil
	}
	if at, ok, err := h.store.Get(ctx, resolved, pin.Lock.Digest()); err == nil && ok && !h.freshLock {
		if t, err := time.Parse(time.RFC3339, at); err == nil && time.Since(t) < askedAgain && time.Since(t) >= 0 {
			return nil, nil
		}
	}
	in, err := h.installer(ctx, s, w)
	if err != nil {
		return nil, err
	}
	now, err := in.Resolve(ctx, w)
	if err == nil && now.Lock.Digest() == pin.Lock.Digest() {
		return nil, h.store.Put(ctx, resolved, pin.Lock.Digest(), time.Now().UTC().Format(time.RFC3339))
	}
	if err != nil {
		return nil, err
	}
	change.Text = fmt.Sprintf("the registry has %s %s with other packages than were accepted (%s); the accepted ones run on", w.Name, now.Version, pin.Version)
	change.Diff = diff.Lines(pin.Lock, now.Lock)
	return []upstream.Change{change}, nil
}

// lockPackage holds the package of a server against its pin, or pins it. unseen: the server cannot be
// started as it is, so nothing can be said of its tools.
func (h *house) lockPackage(ctx context.Context, s contract.Server, accept bool) (changes []upstream.Change, unseen bool, err error) {
	w, ok, err := wanted(s)
	switch {
	case err != nil || !ok:
		return nil, false, err
	case accept && h.sameAsPinned(ctx, s, w):
		return nil, false, nil // installed as it is accepted: another line of its entry has changed
	case accept:
		return nil, false, h.acceptPackage(ctx, s, w)
	case h.pinOf(s.Name) == nil:
		text := fmt.Sprintf("not locked. To look at its package %s before you install and pin it: waldo lock --show %s", w.Spec, s.Name)
		return []upstream.Change{{Server: s.Name, Code: "lock.absent", Text: text}}, true, nil
	}
	changes, err = h.comparePackage(ctx, s, w)
	return changes, !h.pinOf(s.Name).Is(w), err
}
