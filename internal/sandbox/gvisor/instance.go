//go:build linux && (amd64 || arm64)

package gvisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/cgroup"
	"waldo/internal/sandbox/gvisor/job"
	"waldo/internal/sandbox/prestart"
	"waldo/internal/sandbox/userns"
	"waldo/internal/sandbox/volume"
)

// patience is how long a sandbox may take to be made, to start a command, and to be gone once killed.
var patience = time.Minute

// overhead is the allowance for gVisor itself beside its guest: memory in bytes, and threads. Each guest thread
// costs a few.
const (
	overheadMemory  = 160 << 20
	overheadThreads = 192
	threadsPerGuest = 4
)

// instance is one prepared sandbox.
type instance struct {
	driver   *Driver
	profile  sandbox.Profile
	host     *cgroup.Host
	group    *cgroup.Group
	uid, gid int
	warnings []string
	places   []volume.Volume
	egress   io.Closer         // serves the egress; nil: no egress
	waiting  *prestart.Waiting // a command that was started before its job was there
	ran      bool              // a command was run, or is

	running sync.Mutex
	ending  sync.Mutex // guards init
	init    *os.Process
	conn    *job.Conn
}

// errGone is the error of a command that comes after the sandbox has ended.
var errGone = errors.New("gvisor: the sandbox has ended")

// prepare makes the sandbox.
func (b *instance) prepare(executable *os.File) (err error) {
	if b.uid, b.gid, err = userns.OutsideIDs(); err != nil {
		return err
	}
	nodes, err := tree(b.profile)
	if err != nil {
		return err
	}
	covers, err := hidden(b.profile.Template)
	if err != nil {
		return fmt.Errorf("looking for credentials of registries: %w", err)
	}
	mounts, held, err := b.mounts()
	defer func() {
		for _, f := range held {
			_ = f.Close()
		}
	}()
	if err != nil {
		return err
	}
	l := b.profile.Limits
	b.group, err = b.host.New(cgroup.NewID(), cgroup.Limits{
		Memory: l.Memory + job.Slack(l.Memory) + overheadMemory, Pids: l.Pids*threadsPerGuest + overheadThreads,
		MilliCPU: b.driver.options.MilliCPU})
	if err != nil {
		return err
	}
	// Beside the cgroup's share, because gVisor tells its guest of as many processors as it sees,
	// and counts their time as if it had them.
	if b.init, b.conn, err = launch(executable, b.profile, b.uid, b.gid, b.driver.options.MilliCPU); err != nil {
		return err
	}
	if err := b.group.Join(b.init.Pid); err != nil {
		return err
	}
	if !b.host.Memory() {
		b.warnings = append(b.warnings, facts.NoMemoryCgroup)
	}
	byTarget := map[string]sandbox.Tmpfs{}
	for _, t := range places(b.profile) {
		byTarget[t.Target] = t
		mounts = append(mounts, job.Node{Path: t.Target, Kind: job.Tmpfs, Bytes: t.Bytes, Inodes: t.Inodes})
	}
	counted := l.CPU
	if b.host.Times() {
		counted = 0
	}
	ask := job.Sandbox{ID: b.profile.ID, Hostname: sandbox.Hostname, Tree: slices.Concat(nodes, byDepth(mounts), covers),
		Limits: job.Limits{Memory: l.Memory, CPU: counted, Pids: l.Pids, Files: l.Files, Disk: l.Disk, Own: overheadMemory},
		Egress: b.egressSockets()}
	var want []sandbox.Tmpfs
	var copies []*os.File
	for _, n := range ask.Tree {
		if n.Kind == job.Tmpfs {
			want = append(want, byTarget[n.Path])
		}
		if n.Held {
			copies = append(copies, held[n.Path])
		}
	}
	return b.make(ask, copies, want)
}

// make has PID 1 make the root, and takes hold of the volumes.
func (b *instance) make(ask job.Sandbox, held []*os.File, want []sandbox.Tmpfs) error {
	b.conn.SetDeadline(time.Now().Add(patience))
	defer b.conn.SetDeadline(time.Time{})
	if err := b.conn.Send(job.Ask{Sandbox: &ask}, held...); err != nil {
		return fmt.Errorf("telling PID 1 what the sandbox is made of: %w", err)
	}
	var answer job.Answer
	files, err := b.conn.Receive(&answer)
	if err != nil {
		return fmt.Errorf("waiting for the sandbox to be made: %w", err)
	}
	for i, f := range files {
		if i < len(want) {
			b.places = append(b.places, volume.Volume{Tmpfs: want[i], Dir: f, Owner: b.profile.Owner})
		}
	}
	if answer.Error != "" {
		return withHint(answer.Error)
	}
	if answer.Ready == nil || len(files) != len(want)+len(ask.Egress.Sockets) {
		return fmt.Errorf("PID 1 answered %+v with %d descriptors, not %d", answer, len(files),
			len(want)+len(ask.Egress.Sockets))
	}
	if err := b.open(files[len(want):]); err != nil {
		return err
	}
	for _, p := range b.places {
		if err := p.Fill(b.uid, b.gid); err != nil {
			return err
		}
	}
	return b.conn.Send(job.Ask{Boot: &job.Boot{}})
}

// withHint returns an error that PID 1 reported, with a hint if this machine is known to cause it.
func withHint(text string) error {
	err := errors.New(text)
	switch {
	case strings.HasSuffix(text, unix.EACCES.Error()): // in a namespace of one's own, only a security module says that
		return sandbox.WithHint(err, userns.Hint(unix.EACCES))
	case strings.Contains(text, "/proc") && strings.HasSuffix(text, unix.EPERM.Error()):
		return sandbox.WithHint(err,
			"this container covers parts of /proc: in Docker --security-opt systempaths=unconfined, in Kubernetes procMount: "+
				"Unmasked")
	}
	return err
}

// Export copies what the last run left in an exported Tmpfs to a folder of the host.
func (b *instance) Export(target, dir string) ([]string, error) {
	b.running.Lock()
	defer b.running.Unlock()
	copied, err := volume.Export(b.places, target, dir)
	if err != nil {
		err = fmt.Errorf("gvisor: %w", err)
	}
	return copied, err
}

// end ends everything in the sandbox: the kernel kills what is in a PID namespace with its PID 1.
func (b *instance) end() {
	b.ending.Lock()
	defer b.ending.Unlock()
	if b.init == nil {
		return
	}
	_ = b.init.Kill()
	_, _ = b.init.Wait()
	b.init = nil
	_ = b.conn.Close()
}

func (b *instance) over() bool {
	b.ending.Lock()
	defer b.ending.Unlock()
	return b.init == nil
}

// Close ends everything in the sandbox and removes its cgroup. Its mounts end with it.
func (b *instance) Close() error {
	b.end()
	b.running.Lock() // a command that still ran has its facts by now
	defer b.running.Unlock()
	if b.waiting != nil {
		b.waiting.Close()
	}
	b.waiting = nil
	var err error
	if b.egress != nil {
		err, b.egress = b.egress.Close(), nil
	}
	for _, p := range b.places {
		err = errors.Join(err, p.Dir.Close())
	}
	b.places = nil
	if b.group != nil {
		err = errors.Join(err, b.group.Close())
	}
	if err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	return nil
}
