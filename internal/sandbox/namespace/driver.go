//go:build linux && (amd64 || arm64)

package namespace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/keeper"
	"waldo/internal/sandbox/landlock"
	"waldo/internal/sandbox/mount"
	"waldo/internal/sandbox/prewarm"
	"waldo/internal/sandbox/seccomp"
	"waldo/internal/sandbox/seccompnotify"
	"waldo/internal/sandbox/spawn"
	"waldo/internal/sandbox/userns"
	"waldo/internal/sandbox/volume"
	"waldo/internal/sandbox/zygote"
)

// Options are what a driver is made with. The zero Options are for use.
type Options struct {
	MilliCPU int64 // thousandths of a processor that one sandbox may use at a time; 0, or with Terminals: as many as there are
	Prewarm  int   // namespaces prepared in advance: enough for this many sandboxes of any kind, from the first sandbox on
}

// Driver makes sandboxes out of namespaces.
type Driver struct {
	options       Options
	machine       func() (*os.File, error)
	cgroups       func() (*cgroup.Host, error)
	filters       map[bool][kinds]func() (seccompnotify.Filters, error) // by whether processes of other commands are in sight
	refused       refusals
	zygotes       *zygote.Pool
	ready         *prewarm.Keep[*zygote.Zygote, *prewarmed] // of each zygote, and of none
	usernsHolders *prewarm.Keep[struct{}, usernsHolder]
	plans         plans
}

// New returns the driver. It does nothing until Probe or Start.
func New(o Options) *Driver {
	d := &Driver{options: o, machine: sync.OnceValues(initproc.Machine), cgroups: sync.OnceValues(cgroups),
		zygotes: newZygotes(), filters: map[bool][kinds]func() (seccompnotify.Filters, error){}}
	for _, others := range []bool{false, true} {
		var all [kinds]func() (seccompnotify.Filters, error)
		for i := range all {
			all[i] = sync.OnceValues(func() (seccompnotify.Filters, error) { return d.compile(others, i) })
		}
		d.filters[others] = all
	}
	d.ready, d.usernsHolders = d.prewarmInits(), d.prewarmHolders()
	return d
}

// compile makes the filters of one kind. Shared memory and the choice of processors are allowed only if a cgroup
// bounds them. Others: processes of other commands are in sight.
func (d *Driver) compile(others bool, kind int) (out seccompnotify.Filters, err error) {
	host, err := d.cgroups()
	if err != nil {
		return out, err
	}
	return seccompnotify.Compile(seccomp.Profile{Inet: true, Shared: host.Memory(), Affinity: host.CPUs(), Own: !others,
		Watch: kind == overlaid, Live: kind == live || kind == terminals, Terminals: kind == terminals})
}

// filtersOf returns the filters among which a set-up chooses: whether all is shown through overlays comes out later.
func (d *Driver) filtersOf(s *setup) (out filters, err error) {
	some := []int{overlaid, asItIsThere}
	if s.profile.Terminals {
		some = []int{terminals}
	} else if s.live() {
		some = []int{live}
	}
	for _, i := range some {
		if out[i], err = d.filters[s.tree][i](); err != nil {
			return out, err
		}
	}
	return out, nil
}

// cgroups finds out what may be used of the machine's, and begins to remove what ended waldos left behind.
func cgroups() (*cgroup.Host, error) {
	host, err := cgroup.Detect()
	if err == nil {
		go func() { _, _ = host.Sweep() }() // the next waldo tries again those that cannot be removed now
	}
	return host, err
}

// Name returns "namespace".
func (d *Driver) Name() string { return "namespace" }

// Start prepares a sandbox: everything but the command is done when it returns.
func (d *Driver) Start(ctx context.Context, p sandbox.Profile) (sandbox.Sandbox, error) {
	if err := refuse(p); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	machine, err := d.machine()
	if err != nil {
		return nil, err
	}
	host, err := d.cgroups()
	if err != nil {
		return nil, fmt.Errorf("namespace: %w", err)
	}
	if k, ok := kindOf(p); ok {
		if z := d.zygotes.Get(k); z != nil {
			if b, err := d.start(p, host, machine, z); err == nil {
				return b, nil
			} // it may have died just now; any other reason comes again
		}
	}
	return d.start(p, host, machine, nil)
}

// start prepares a sandbox, from a zygote where one is given. It tries again without each overlay that is refused.
func (d *Driver) start(
	p sandbox.Profile, host *cgroup.Host, machine *os.File, from *zygote.Zygote,
) (b sandbox.Sandbox, err error) {
	for again := true; again; again = err != nil && d.refused.learn(err) {
		b, err = d.startOnce(p, host, machine, from)
	}
	return b, err
}

func (d *Driver) startOnce(
	p sandbox.Profile, host *cgroup.Host, machine *os.File, from *zygote.Zygote,
) (sandbox.Sandbox, error) {
	b := &instance{driver: d, profile: p, host: host, warnings: []string{}, forked: from != nil}
	if p.Share != nil {
		var err error
		if b.shares, err = keeper.Enter(machine, host, p); err != nil {
			return nil, err
		}
		b.uid, b.gid = b.shares.IDs()
	} else if prewarmed, ok := d.takePrewarmed(p, from); ok {
		b.stage, b.group, b.uid, b.gid, b.joined = prewarmed.stage, prewarmed.group, prewarmed.uid, prewarmed.gid, true
	} else {
		var err error
		if b.uid, b.gid, err = userns.OutsideIDs(); err != nil {
			return nil, err
		}
	}
	if err := b.prepare(machine, from); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// refuse returns an error if this driver cannot apply the profile.
func refuse(p sandbox.Profile) error {
	if err := p.Validate(); err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	if len(p.Mounts) > initproc.MaxFiles/2-mount.MaxTop/2 {
		return fmt.Errorf("namespace: %d mounts; at most %d", len(p.Mounts), initproc.MaxFiles/2-mount.MaxTop/2)
	}
	if len(p.Tmpfs) >= initproc.MaxPlaces {
		return fmt.Errorf("namespace: %d writable places; at most %d", len(p.Tmpfs), initproc.MaxPlaces-1)
	}
	return nil
}

// prepare makes the sandbox.
func (b *instance) prepare(machine *os.File, from *zygote.Zygote) error {
	rules, err := landlock.Open(landlock.Rules{AnyFile: b.profile.Only == nil, AnyTCP: true, Signals: b.shares.Tree()})
	if err != nil {
		return err
	}
	if b.profile.Only != nil && rules.ABI == 0 {
		return sandbox.WithHint(fmt.Errorf("namespace: %w", sandbox.ErrOnly),
			"it needs Landlock: Linux 5.13 or later, with landlock among the modules of the boot option lsm=")
	}
	for _, lost := range rules.Lost {
		b.warnings = append(b.warnings, "landlock: not held to: "+lost)
	}
	files := []*os.File{nil}
	if rules.FD >= 0 {
		files[0] = os.NewFile(uintptr(rules.FD), "landlock")
	}
	defer func() {
		for _, f := range files {
			_ = f.Close() // nil: an error and no more
		}
	}()
	if b.profile.Share != nil && b.profile.Share.Apart && b.shares.Tree() && rules.FD < 0 {
		return sandbox.ErrApart
	}
	folders, links, err := mount.Top(b.profile.Template)
	if err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	mounts, err := b.take(folders, b.profile.Mounts)
	for _, space := range b.spaces {
		_ = space.Close()
	}
	for _, m := range mounts {
		files = append(files, m.tree)
	}
	if err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	s := &setup{
		profile: b.profile, uid: b.uid, gid: b.gid, counted: b.host.Memory(), abi: rules.ABI, landlock: rules.FD >= 0,
		mounts: mounts, links: links, firstTree: landlockFD + 1, files: len(files), refused: b.driver.refused.snapshot(),
	}
	if !b.host.Memory() {
		b.warnings = append(b.warnings, facts.NoMemoryCgroup)
	}
	if b.profile.Template.Dir == "" {
		for _, dir := range slices.Concat(system, shared) {
			if errno, refused := s.refused[dir]; refused {
				b.warnings = append(b.warnings, asItIs(dir, errno))
			}
		}
	}
	s.forked, s.joined, s.tree = from != nil, b.shares != nil, b.shares.Tree()
	if s.filters, err = b.driver.filtersOf(s); err != nil {
		return err
	}
	late := b.shares.Late()
	if s.forked {
		late = []*os.File{machine}
	}
	s.late, s.files = landlockFD+s.files, s.files+len(late)
	s.mapped = !s.joined && b.uid != os.Geteuid() && userns.Administers()
	return b.launch(machine, from, slices.Concat(files, late), s)
}

// milliCPU returns the bound on processors. A session has them all, as its /proc says: builds run in it. Its weight holds
// it to the share of one owner beside others.
func (b *instance) milliCPU() int64 {
	if b.profile.Terminals {
		return 0
	}
	return b.driver.options.MilliCPU
}

// launch has PID 1 made, where it is not, and sends it what it is to do.
func (b *instance) launch(machine *os.File, from *zygote.Zygote, files []*os.File, s *setup) (err error) {
	l := b.profile.Limits
	limits := cgroup.Limits{Memory: l.Memory, Pids: l.Pids + 1, MilliCPU: b.milliCPU()}
	if b.stage != nil {
		err = b.group.Bound(limits)
	} else if b.shares != nil {
		b.stage, b.group, b.joined, err = b.shares.Spawn(machine, b.host, limits)
	} else {
		b.stage, b.group, b.joined, err = begin(machine, b.host, from, b.uid, b.gid, limits)
	}
	if err != nil {
		return err
	}
	s.tasks = len(b.group.JoinFDs)
	p, err := b.driver.plans.of(s)
	if err != nil {
		return fmt.Errorf("looking for credentials of registries: %w", err)
	}
	if len(p.program) > initproc.ProgramMax {
		return fmt.Errorf("namespace: the sandbox's program has %d bytes, and at most %d fit", len(p.program),
			initproc.ProgramMax)
	}
	unsent := b.stage.SendSandbox(files, b.group.JoinFDs, p.program)
	if err := b.stage.HandOver(); err != nil { // its error says more than unsent
		return err
	}
	if unsent != nil {
		return unsent
	}
	b.init, b.stage.HandsOn = b.stage.Init, s.tree
	if s.mapped {
		err = b.mapIDs()
	}
	if err := errors.Join(err, b.join()); err != nil {
		return err
	}
	err = b.stage.Ready(p.list, func(kind uint64, files []*os.File) error { return b.receive(p, kind, files) },
		func(lost error) { b.warnings = append(b.warnings, lost.Error()) })
	b.init = b.stage.Init // where processes are shared, another one
	return err
}

// begin has PID 1 of a sandbox made in a cgroup of its own, by a zygote where one is given. It reports whether it is
// in the version 2 group from its beginning.
func begin(
	machine *os.File, host *cgroup.Host, from *zygote.Zygote, uid, gid int, l cgroup.Limits,
) (s *initproc.Stage, g *cgroup.Group, joined bool, err error) {
	if from == nil {
		if g, err = host.New(cgroup.NewID(), l); err == nil {
			if host.CPUs() {
				l.MilliCPU = 0 // there it is the group that bounds them
			}
			s, joined, err = initproc.SpawnInit(machine, uid, gid, g, l.MilliCPU)
		}
	} else if s, err = fork(from); err == nil { // while it makes PID 1, the group is made
		g, err = host.NewForked(cgroup.NewID(), l)
	}
	if err != nil && s != nil {
		err = errors.Join(err, s.Close())
	}
	if err != nil && g != nil {
		err = errors.Join(err, g.Close())
	}
	if err != nil {
		return nil, nil, false, err
	}
	return s, g, joined, nil
}

// receive takes what the sandbox sends while it is being prepared.
func (b *instance) receive(p *plan, kind uint64, files []*os.File) error {
	if kind == initproc.RecNotice && len(files) == 1 {
		_ = unix.SetNonblock(int(files[0].Fd()), true) // so that it can be waited for; it cannot fail
		fd, err := unix.FcntlInt(files[0].Fd(), unix.F_DUPFD_CLOEXEC, 0)
		files[0].Close()
		if err != nil {
			return fmt.Errorf("namespace: the listener: %w", err)
		}
		b.notice = seccompnotify.Listen(os.NewFile(uintptr(fd), "seccomp"))
		return nil
	}
	if kind == initproc.RecFiles {
		return b.open(files)
	}
	if len(files) < p.overlays {
		return fmt.Errorf("namespace: the sandbox sent %d descriptors, and its overlays alone are %d", len(files), p.overlays)
	}
	b.overlays = files[:p.overlays]
	if err := b.fill(p.writable, files[p.overlays:]); err != nil {
		return err
	}
	_, _ = b.stage.Ctl.Write([]byte{1}) // a sandbox that is gone has left its reason behind
	return nil
}

// fill takes hold of the volumes and puts into them what they start with.
func (b *instance) fill(targets []string, files []*os.File) error {
	if len(files) != len(targets) {
		return fmt.Errorf("namespace: the sandbox sent %d places, not %d", len(files), len(targets))
	}
	for i, t := range targets {
		p := volume.Volume{Tmpfs: sandbox.Tmpfs{Target: t}, Dir: files[i], Owner: b.profile.Owner}
		for _, own := range b.profile.Tmpfs {
			if own.Target == t {
				p.Tmpfs = own
			}
		}
		b.places = append(b.places, p)
	}
	for _, p := range b.places {
		if err := p.Fill(b.uid, b.gid); err != nil {
			return fmt.Errorf("namespace: %w", err)
		}
	}
	return nil
}

// join puts PID 1, and all its later children, into the sandbox's version 2 cgroup, if it was not born there. PID 1
// joins the version 1 groups itself.
func (b *instance) join() error {
	if !b.joined {
		if err := b.group.JoinUnified(b.stage.Init.Pid); err != nil {
			return fmt.Errorf("namespace: %w", err)
		}
	}
	if milli := b.milliCPU(); b.forked && milli > 0 && !b.host.CPUs() { // others are from their beginning
		_, err := spawn.Pin(b.stage.Init.Pid, milli)
		return err
	}
	return nil
}

var (
	_ sandbox.Sandbox = (*instance)(nil)
	_ sandbox.Forked  = (*instance)(nil)
	_ sandbox.Forker  = (*Driver)(nil)
)

// Export copies what the last run left in an exported Tmpfs to a folder of the host, which it
// makes if need be. It returns the paths of the files, from the folder. Files that cannot be
// copied are in the error; the rest is copied all the same.
func (b *instance) Export(target, dir string) ([]string, error) {
	b.running.Lock()
	defer b.running.Unlock()
	copied, err := volume.Export(b.places, target, dir)
	if err != nil {
		err = fmt.Errorf("namespace: %w", err)
	}
	return copied, err
}
