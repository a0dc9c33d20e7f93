// Package launch starts a server at its placement. That is a sandbox of its own, a sandbox with the files of a
// session, or outside of any sandbox.
package launch

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"waldo/internal/executor/sandboxegress"
	"waldo/internal/executor/serverpackage"
	"waldo/internal/executor/upstream"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/model/secret"
	"waldo/internal/model/wellknown"
	"waldo/internal/sandbox"
	"waldo/internal/storage/safefile"
	"waldo/internal/storage/workspace"
)

// Launcher starts the servers of one configuration.
type Launcher struct {
	State     string // the state directory
	Config    *contract.Config
	Drivers   map[string]sandbox.Driver // make their sandboxes, by level of isolation
	Egress    *sandboxegress.Assembler
	Packages  *serverpackage.Packages
	Secret    func(secret.Ref) (secret.Value, error)
	Unchanged func(contract.Server) error                      // refuses a program that changed since it was trusted
	Workspace func(call.Session) (*workspace.Workspace, error) // opens the files of a session
}

// serverLimits bound the sandbox of a server. The server lives as long as it is needed, so its wall clock and processor
// time are long.
var serverLimits = sandbox.Limits{
	Wall: 365 * 24 * time.Hour, CPU: 365 * 24 * time.Hour, Memory: 1 << 30, Pids: 256, Files: 1024,
	Disk: 256 << 20, Inodes: 20_000, Output: 1 << 20,
}

// limitsOf returns the limits of one server's sandbox: serverLimits, except where the configuration sets others.
func limitsOf(s contract.Server) sandbox.Limits {
	l := serverLimits
	set := func(to *int64, n int, unit int64) {
		if n > 0 {
			*to = int64(n) * unit
		}
	}
	set(&l.Memory, s.Limits.MemoryMB, 1<<20)
	set(&l.Pids, s.Limits.Pids, 1)
	set(&l.Files, s.Limits.Files, 1)
	set(&l.Disk, s.Limits.DiskMB, 1<<20)
	return l
}

// started returns the command of a server and the mounts of its sandbox: its program, or its pinned package.
func (l *Launcher) started(ctx context.Context, s contract.Server) ([]string, []sandbox.Mount, error) {
	w, ok, err := serverpackage.Wanted(s)
	if err != nil {
		return nil, nil, err
	}
	if ok {
		argv, mounts, err := l.Packages.Open(ctx, s, w)
		if err != nil {
			return nil, nil, err
		}
		_, shown, err := l.shown(s, true)
		return argv, slices.Insert(mounts, len(mounts)-1, mountsOf(shown)...), err
	}
	if err := serverpackage.RefuseFetching(s); err != nil {
		return nil, nil, err
	}
	argv, shown, err := l.shown(s, false)
	return argv, mountsOf(shown), err
}

// shown returns the command of a server and the files of this machine to mount in its sandbox.
func (l *Launcher) shown(s contract.Server, packaged bool) ([]string, []files.Mount, error) {
	argv, shown, faults := files.Here(l.State).For(l.Config).Shown(s, packaged)
	if len(faults) > 0 {
		return nil, nil, fmt.Errorf("server %s: %w", s.Name, faults[0])
	}
	return argv, shown, nil
}

// mountsOf converts mounts to those of a sandbox profile.
func mountsOf(shown []files.Mount) (out []sandbox.Mount) {
	for _, m := range shown {
		out = append(out, sandbox.Mount{Source: m.Source, Target: m.Target, Writable: m.Writable, Sealed: m.Sealed})
	}
	return out
}

// Launch starts a server where its placement says. n is the session that it is for; empty: none.
func (l *Launcher) Launch(ctx context.Context, s contract.Server, n call.Session) (upstream.Process, error) {
	argv, mounts, err := l.started(ctx, s)
	if err == nil {
		err = l.Unchanged(s)
	}
	if err != nil {
		return upstream.Process{}, err
	}
	env, err := l.env(s)
	if err != nil {
		return upstream.Process{}, fmt.Errorf("server %s: %w", s.Name, err)
	}
	p := upstream.Process{}
	switch s.Placement {
	case "outside":
		p, err = l.outside(ctx, argv, env)
	case "", "sandbox":
		p, err = l.inSandbox(ctx, s, argv, mounts, env, nil)
	case InWorkspace:
		p, err = l.inWorkspace(ctx, s, n, argv, mounts, env)
	default:
		err = fmt.Errorf("server %s: placement %s is not enforced by this build", s.Name, s.Placement)
	}
	p.Made, _ = l.made(s, env) // without an injected secret: no process is interchangeable with this one
	return p, err
}

// outside starts a server outside any sandbox, in an empty folder that goes with it.
func (l *Launcher) outside(ctx context.Context, argv, env []string) (upstream.Process, error) {
	dir, err := safefile.Scratch(filepath.Join(l.State, "outside"))
	if err != nil {
		return upstream.Process{}, err
	}
	p, err := upstream.Exec(ctx, argv, env, dir)
	if err != nil {
		return p, errors.Join(err, os.RemoveAll(dir))
	}
	wait := p.Wait
	p.Wait = func() error { defer os.RemoveAll(dir); return wait() }
	return p, nil
}

// Made returns what Process.Made of the server would be if it were started now: a digest of its environment and of its
// injected secrets, which is another when one of them is.
func (l *Launcher) Made(s contract.Server) (string, error) {
	env, err := l.env(s)
	if err != nil {
		return "", err
	}
	return l.made(s, env)
}

func (l *Launcher) made(s contract.Server, env []string) (string, error) {
	all := slices.Clone(env)
	for k, ref := range s.Secrets {
		in := l.Config.Secrets[string(ref)].Inject
		if in == nil {
			continue // it is in the environment
		}
		for i, r := range []secret.Ref{ref, in.Key, in.Token} {
			if r == "" {
				continue
			}
			v, err := l.Secret(r)
			if err != nil {
				return "", fmt.Errorf("%s: %w", k, err)
			}
			all = append(all, fmt.Sprintf("%s %d %s", k, i, v.Reveal()))
		}
	}
	return Digest(all), nil
}

// Digest sums texts up without showing anything of them. It is of this process alone.
func Digest(env []string) string {
	sum := hmac.New(sha256.New, digestKey())
	for _, e := range slices.Sorted(slices.Values(env)) {
		_, _ = fmt.Fprintf(sum, "%d %s ", len(e), e)
	}
	return string(sum.Sum(nil))
}

// digestKey is of this process alone.
var digestKey = sync.OnceValue(func() []byte { return []byte(rand.Text()) })

// env returns the whole environment of a server: a path, the variables of the configuration, and its secrets, which
// redaction knows from here on. An error names a missing secret.
func (l *Launcher) env(s contract.Server) ([]string, error) {
	env := []string{"PATH=" + strings.Join(files.Path, ":"), "HOME=/workspace/tmp", "TMPDIR=/workspace/tmp", "LANG=C.UTF-8"}
	if s.Data != "" {
		env[1] = "HOME=" + contract.DataAt
		known, _ := wellknown.Find(s.Command)
		for k, v := range known.Data {
			if s.Env[k] == "" {
				env = append(env, k+"="+v)
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		env = append(env, k+"="+s.Env[k])
	}
	for _, k := range slices.Sorted(maps.Keys(s.Secrets)) {
		if l.Config.Secrets[string(s.Secrets[k])].Inject != nil {
			continue // its sandbox gets a placeholder
		}
		v, err := l.Secret(s.Secrets[k])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k, err)
		}
		env = append(env, k+"="+v.Reveal())
	}
	return env, nil
}

// inSandbox starts a server in a sandbox of its own, which reaches what its network allows. It shares its output with
// ws; nil: with no workspace.
func (l *Launcher) inSandbox(
	ctx context.Context, s contract.Server, argv []string, mounts []sandbox.Mount, env []string, ws *workspace.Workspace,
) (upstream.Process, error) {
	driver, limits := l.Drivers[s.Isolation], limitsOf(s)
	if driver == nil {
		return upstream.Process{}, fmt.Errorf("server %s: this machine does not give isolation %q", s.Name, s.Isolation)
	}
	p := sandbox.Profile{
		ID: id.New(id.Sandbox), Template: sandbox.Template{Name: "host"}, Mounts: mounts, Limits: limits,
		Tmpfs: []sandbox.Tmpfs{
			{Target: "/workspace/output", Bytes: limits.Disk, Inodes: limits.Inodes, Export: ws != nil},
			{Target: "/workspace/tmp", Bytes: limits.Disk, Inodes: limits.Inodes},
			{Target: "/tmp", Bytes: limits.Disk, Inodes: limits.Inodes},
		},
	}
	if s.Data != "" {
		data, err := l.dataFolder(s.Data)
		if err != nil {
			return upstream.Process{}, fmt.Errorf("server %s: %w", s.Name, err)
		}
		p.Mounts = append(p.Mounts, data)
	}
	net, err := l.Egress.ForNetwork(s.Network, s.Secrets)
	if err != nil {
		return upstream.Process{}, fmt.Errorf("server %s: %w", s.Name, err)
	}
	env = slices.Concat(env, net.Open(&p))
	sb, err := net.Start(ctx, driver, p)
	if err != nil {
		return upstream.Process{}, errors.Join(err, net.End())
	}
	share, lacks := sharing(sb, ws), sb.Abilities().Lacks
	if share != nil {
		if _, err := share(); err != nil {
			return upstream.Process{}, errors.Join(fmt.Errorf("server %s: %w", s.Name, err), sb.Close(), net.End())
		}
	}
	ledger, err := writes(p.Mounts)
	if err != nil {
		return upstream.Process{}, errors.Join(fmt.Errorf("server %s: %w", s.Name, err), sb.Close(), net.End())
	}
	in, out := toServer{newPipe()}, fromServer{newPipe()}
	errR, errW := io.Pipe()
	run, kill := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(run, func() { // without a reader, unread output must not keep the sandbox alive
		in.Close()
		out.Close()
		errR.Close()
	})
	ended, use := make(chan error, 1), &meter{spent: sb.Abilities().Spent}
	go l.Egress.Watch(run, s.Name, p.ID, net)
	go func() {
		f, err := sb.Run(run, sandbox.Command{Argv: argv, Env: env, Stderr: errW, Serve: true,
			Direct: &sandbox.Direct{In: in.use, Out: out.use}})
		if err == nil && f.Status != facts.OK {
			err = endedBy(f, lacks)
		}
		errW.Close()
		if share != nil {
			_, lost := share() // its output since the last call
			err = errors.Join(err, lost)
		}
		kill()
		use.end()
		err = errors.Join(err, sb.Close())
		if ledger != nil {
			err = errors.Join(err, ledger.Close())
		}
		f = facts.New()
		l.Egress.Reached(s.Name, p.ID, net, &f)
		ended <- errors.Join(err, net.End())
	}()
	var reached func(*facts.Facts)
	if net != nil {
		reached = func(f *facts.Facts) { l.Egress.Reached(s.Name, p.ID, net, f) }
	}
	return upstream.Process{
		Reached: reached, Stdin: in, Stdout: out, Stderr: errR, Kill: kill, Wait: func() error { defer kill(); return <-ended },
		Sandbox:  facts.Sandbox{ID: p.ID, Driver: driver.Name(), Template: "host"},
		Warnings: lacks,
		Share:    during(run, together(share, ledger)),
		Spent:    use.read,
	}, nil
}

// meter reads what a sandbox uses until it is closed.
type meter struct {
	mu    sync.Mutex
	spent func() sandbox.Use // nil: nothing measures it, or it is closed
}

func (m *meter) read() (u sandbox.Use) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.spent != nil {
		u = m.spent()
	}
	return u
}

func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spent = nil
}

// endedBy returns how a server's program ended, with the warnings of this run. It leaves out those that its sandbox
// had from the start (lacks), because they do not explain the end.
func endedBy(f facts.Facts, lacks []string) error {
	how := string(f.Status)
	if f.ExitCode != nil {
		how = fmt.Sprintf("exit status %d", *f.ExitCode)
	} else if f.Signal != nil && f.Status == facts.Failed {
		how = *f.Signal
	}
	if starved := f.Starved(); starved != "" {
		f.Warnings = append(f.Warnings, starved)
	}
	own := slices.DeleteFunc(slices.Clone(f.Warnings), func(w string) bool { return slices.Contains(lacks, w) })
	return fmt.Errorf("its program ended: %s", strings.Join(append([]string{how}, own...), "; "))
}
