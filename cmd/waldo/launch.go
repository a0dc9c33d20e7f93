package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"waldo/internal/executor/serverpackage"
	"waldo/internal/executor/upstream"
	"waldo/internal/executor/upstream/files"
	"waldo/internal/model/call"
	"waldo/internal/model/contract"
	"waldo/internal/model/facts"
	"waldo/internal/model/id"
	"waldo/internal/sandbox"
	"waldo/internal/storage/workspace"
)

// serverLimits hold an upstream that runs in a box of its own. It speaks for as long as it is
// needed, so its wall clock is long and its processor time is not counted out.
var serverLimits = sandbox.Limits{
	Wall: 365 * 24 * time.Hour, CPU: 365 * 24 * time.Hour, Memory: 1 << 30, Pids: 256, Files: 1024,
	Disk: 256 << 20, Inodes: 20_000, Output: 1 << 20,
}

// limitsOf are the limits of one server's box: waldo's own, but for what the operator has written.
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
func (h *house) started(ctx context.Context, s contract.Server) ([]string, []sandbox.Mount, error) {
	w, ok, err := serverpackage.Wanted(s)
	if err != nil {
		return nil, nil, err
	}
	if ok {
		argv, mounts, err := h.packages.Open(ctx, s, w)
		if err != nil {
			return nil, nil, err
		}
		_, shown, err := h.shown(s, true)
		return argv, slices.Insert(mounts, len(mounts)-1, boxed(shown)...), err
	}
	if err := serverpackage.RefuseFetching(s); err != nil {
		return nil, nil, err
	}
	argv, shown, err := h.shown(s, false)
	return argv, boxed(shown), err
}

// shown returns the command of a server and what its sandbox is shown of this machine's files.
func (h *house) shown(s contract.Server, packaged bool) ([]string, []files.Mount, error) {
	argv, shown, faults := files.Here(h.state).For(h.cfg).Shown(s, packaged)
	if len(faults) > 0 {
		return nil, nil, fmt.Errorf("server %s: %w", s.Name, faults[0])
	}
	return argv, shown, nil
}

// boxed are the mounts as a sandbox takes them.
func boxed(shown []files.Mount) (out []sandbox.Mount) {
	for _, m := range shown {
		out = append(out, sandbox.Mount{Source: m.Source, Target: m.Target, Writable: m.Writable, Sealed: m.Sealed})
	}
	return out
}

// Launch starts an upstream where its placement says: in a box of its own, in the workspace of the
// session that it is for, or outside where the operator has written so.
func (h *house) Launch(ctx context.Context, s contract.Server, n call.Session) (upstream.Process, error) {
	argv, mounts, err := h.started(ctx, s)
	if err == nil {
		err = h.unchanged(s)
	}
	if err != nil {
		return upstream.Process{}, err
	}
	env, err := h.serverEnv(s)
	if err != nil {
		return upstream.Process{}, fmt.Errorf("server %s: %w", s.Name, err)
	}
	switch s.Placement {
	case "outside":
		return upstream.Exec(ctx, argv, env, "")
	case "", "sandbox":
		return h.inOwnBox(ctx, s, argv, mounts, env, nil)
	case placedInWorkspace:
		return h.inWorkspace(ctx, s, n, argv, mounts, env)
	}
	return upstream.Process{}, fmt.Errorf("server %s: placement %s is not enforced by this build", s.Name, s.Placement)
}

// serverEnv is the whole environment of an upstream: a path, what the operator wrote, and the
// secrets that were named, which are known from here on and hidden wherever they surface. A secret
// that is missing is told by its name.
func (h *house) serverEnv(s contract.Server) ([]string, error) {
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/workspace/tmp", "TMPDIR=/workspace/tmp", "LANG=C.UTF-8"}
	if s.Data != "" {
		env[1] = "HOME=" + contract.DataAt
		for k, v := range dataOf(s) {
			if s.Env[k] == "" {
				env = append(env, k+"="+v)
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		env = append(env, k+"="+s.Env[k])
	}
	for _, k := range slices.Sorted(maps.Keys(s.Secrets)) {
		if h.cfg.Secrets[string(s.Secrets[k])].Inject != nil {
			continue // its box gets a placeholder
		}
		v, err := h.secrets.Get(s.Secrets[k])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k, err)
		}
		env = append(env, k+"="+v.Reveal())
	}
	return env, nil
}

// inOwnBox runs an upstream in a box of its own, which reaches what its network allows, for as long
// as it lives.
// Its files are shared with those of ws; nil: with nobody's.
func (h *house) inOwnBox(ctx context.Context, s contract.Server, argv []string, mounts []sandbox.Mount, env []string, ws *workspace.Workspace) (upstream.Process, error) {
	l := limitsOf(s)
	p := sandbox.Profile{
		ID: id.New(id.Sandbox), Template: sandbox.Template{Name: "host"}, Mounts: mounts, Limits: l,
		Tmpfs: []sandbox.Tmpfs{
			{Target: "/workspace/output", Bytes: l.Disk, Inodes: l.Inodes, Export: ws != nil},
			{Target: "/workspace/tmp", Bytes: l.Disk, Inodes: l.Inodes},
			{Target: "/tmp", Bytes: l.Disk, Inodes: l.Inodes},
		},
	}
	if s.Data != "" {
		data, err := h.dataFolder(s.Data)
		if err != nil {
			return upstream.Process{}, fmt.Errorf("server %s: %w", s.Name, err)
		}
		p.Mounts = append(p.Mounts, data)
	}
	way, err := h.egresses().ForNetwork(s.Network, s.Secrets)
	if err != nil {
		return upstream.Process{}, fmt.Errorf("server %s: %w", s.Name, err)
	}
	env = slices.Concat(env, way.Open(&p))
	driver := h.drivers["namespace"]
	box, err := way.Start(ctx, driver, p)
	if err != nil {
		return upstream.Process{}, errors.Join(err, way.End())
	}
	share := sharing(box, ws)
	if share != nil {
		if _, err := share(); err != nil {
			return upstream.Process{}, errors.Join(fmt.Errorf("server %s: %w", s.Name, err), box.Close(), way.End())
		}
	}
	ledger, err := writes(p.Mounts)
	if err != nil {
		return upstream.Process{}, errors.Join(fmt.Errorf("server %s: %w", s.Name, err), box.Close(), way.End())
	}
	in, out := toServer{newStraight()}, fromServer{newStraight()}
	errR, errW := io.Pipe()
	run, kill := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(run, func() { // nobody may be reading any more, and what the box has yet to say must not keep it
		in.Close()
		out.Close()
		errR.Close()
	})
	ended := make(chan error, 1)
	go h.egresses().Watch(run, s.Name, p.ID, way)
	go func() {
		f, err := box.Run(run, sandbox.Command{Argv: argv, Env: env, Stdin: in, Stdout: out, Stderr: errW, Serve: true})
		if err == nil && f.Status != facts.OK {
			how := string(f.Status)
			if f.ExitCode != nil {
				how = fmt.Sprintf("exit status %d", *f.ExitCode)
			} else if f.Signal != nil && f.Status == facts.Failed {
				how = *f.Signal
			}
			err = fmt.Errorf("its program ended: %s", strings.Join(append([]string{how}, f.Warnings...), "; "))
		}
		errW.Close()
		if share != nil {
			_, lost := share() // what it wrote after the last call
			err = errors.Join(err, lost)
		}
		kill()
		err = errors.Join(err, box.Close())
		if ledger != nil {
			err = errors.Join(err, ledger.Close())
		}
		h.egresses().Reached(s.Name, p.ID, way)
		ended <- errors.Join(err, way.End())
	}()
	return upstream.Process{
		Stdin: in, Stdout: out, Stderr: errR, Kill: kill, Wait: func() error { defer kill(); return <-ended },
		Box: facts.Sandbox{ID: p.ID, Driver: driver.Name(), Template: "host"}, Share: during(run, together(share, ledger)),
	}, nil
}
