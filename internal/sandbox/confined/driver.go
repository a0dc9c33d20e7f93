//go:build linux && (amd64 || arm64)

package confined

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"waldo/internal/model/facts"
	"waldo/internal/sandbox"
	"waldo/internal/sandbox/landlock"
	"waldo/internal/sandbox/userns"
	"waldo/internal/sandbox/volume"
)

// Driver makes sandboxes without namespaces.
type Driver struct {
	options Options
	sweep   sync.Once
}

// New returns the driver. It does nothing until Probe or Start.
func New(o Options) *Driver { return &Driver{options: o} }

// Name returns "confined".
func (d *Driver) Name() string { return "confined" }

// needABI is the first Landlock that holds signals back.
const needABI = landlock.Scopes

// readable lists the paths that a sandbox can read and execute, if they exist.
var readable = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/ld.so.cache",
	"/etc/localtime", "/etc/alternatives",
	"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/mime.types"}

// devices are what a sandbox may read and write.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

type instance struct {
	profile  sandbox.Profile
	milli    int64
	dir      string   // of all the sandbox's folders; empty: the sandbox has ended
	held     *os.File // dir, locked for as long as this process lives
	uid, gid int
	places   []volume.Volume
	targets  []string // folders of the sandbox by the names that the profile has for them
	rules    landlock.Rules
	warnings []string
	running  sync.Mutex
	over     bool                // ended by force: not used again
	now      atomic.Pointer[run] // the present run
	closing  atomic.Bool
}

// Start makes the sandbox's folders. It refuses what only namespaces give.
func (d *Driver) Start(_ context.Context, p sandbox.Profile) (sandbox.Sandbox, error) {
	if err := refuse(p, landlock.ABI()); err != nil {
		return nil, err
	}
	d.sweep.Do(func() { sweep(tempDir()) })
	b := &instance{profile: p, milli: d.options.MilliCPU}
	var err error
	if b.uid, b.gid, err = userns.OutsideIDs(); err != nil {
		return nil, fmt.Errorf("confined: %w", err)
	}
	if err := b.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("confined: %w", err), b.Close())
	}
	return b, nil
}

// refuse returns an error if this driver cannot apply the profile.
func refuse(p sandbox.Profile, abi int) error {
	if abi < needABI {
		return fmt.Errorf("confined: Landlock ABI %d is needed to hold signals and files, this kernel has %d: "+
			"Linux 6.12 or later, with landlock among the modules of the boot option lsm=", needABI, abi)
	}
	if p.Template.Name != "host" {
		return fmt.Errorf("confined: template %q: without a mount namespace the only root is the host's", p.Template.Name)
	}
	if err := errors.Join(p.Validate(), sandbox.NoHosts(p.Network), sandbox.NoShare(p),
		sandbox.NoWritable(p), sandbox.NoHidden(p)); err != nil {
		return fmt.Errorf("confined: %w", err)
	}
	for _, m := range p.Mounts {
		if m.Source != m.Target && !strings.HasPrefix(m.Target, "/workspace/") {
			return fmt.Errorf("confined: mount %s at %s: without a mount namespace a folder keeps its name", m.Source, m.Target)
		}
	}
	return nil
}

func (b *instance) prepare() (err error) {
	if err := b.makeDir(tempDir()); err != nil {
		return err
	}
	l := b.profile.Limits
	places := append([]sandbox.Tmpfs{{Target: "/workspace", Bytes: l.Disk, Inodes: l.Inodes},
		{Target: "/tmp", Bytes: l.Disk, Inodes: l.Inodes}}, b.profile.Tmpfs...)
	for _, t := range places {
		if err := b.place(t); err != nil {
			return err
		}
	}
	b.rules = b.allowed()
	for _, m := range b.profile.Mounts {
		if m.Source != m.Target {
			if err := os.Symlink(m.Source, b.dir+m.Target); err != nil {
				return err
			}
		}
	}
	b.warnings = append(b.warnings,
		fmt.Sprintf("confined: a weaker sandbox: %d things are not held as in others; waldo doctor names them", lost()))
	return nil
}

// allowed returns what the commands may use.
func (b *instance) allowed() landlock.Rules {
	r := landlock.Rules{Write: there(devices), NeedFull: true}
	var own, mounts []string
	for _, t := range b.targets {
		own = append(own, b.dir+t)
	}
	for _, m := range b.profile.Mounts {
		if mounts = append(mounts, m.Source); m.Exact {
			r.Exact = append(r.Exact, m.Source)
		}
	}
	only := b.profile.Only
	if only == nil {
		r.Execute, r.Write = slices.Concat(there(readable), mounts, own), append(r.Write, own...)
		return r
	}
	r.Execute = there(only.Execute)
	for _, p := range only.Read {
		r.Read = append(r.Read, b.here(strings.TrimSuffix(p, "/")))
		for _, m := range b.profile.Mounts {
			if strings.HasPrefix(m.Target+"/", p) {
				r.Read = append(r.Read, m.Source)
			}
		}
	}
	for _, p := range only.Write {
		r.Write = append(r.Write, b.here(strings.TrimSuffix(p, "/")))
	}
	r.Read, r.Write = there(r.Read), there(r.Write)
	return r
}

// there returns those of some paths that exist.
func there(paths []string) (out []string) {
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// place makes one writable folder and fills it.
func (b *instance) place(t sandbox.Tmpfs) error {
	at := b.dir + t.Target
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	for p := at; p != b.dir; p = filepath.Dir(p) {
		if err := os.Chown(p, b.uid, b.gid); err != nil {
			return err
		}
	}
	b.targets = append(b.targets, t.Target)
	dir, err := os.Open(at)
	if err != nil {
		return err
	}
	p := volume.Volume{Tmpfs: t, Dir: dir, Owner: b.profile.Owner}
	b.places = append(b.places, p)
	return p.Fill(b.uid, b.gid)
}

// lost counts the classes that are not held.
func lost() (n int) {
	for _, p := range promises {
		if !p.Held {
			n++
		}
	}
	return n
}

// here gives a path of the profile the name that it has without a mount namespace.
func (b *instance) here(s string) string {
	for _, t := range b.targets {
		if s == t || strings.HasPrefix(s, t+"/") {
			return b.dir + s
		}
	}
	return s
}

// Export copies what was left in an exported place.
func (b *instance) Export(target, dir string) ([]string, error) {
	return volume.Export(b.places, target, dir)
}

// Abilities satisfies sandbox.Sandbox: it has none.
func (b *instance) Abilities() sandbox.Abilities { return sandbox.Abilities{Lacks: b.warnings} }

// Close ends what runs in the sandbox and removes its folders.
func (b *instance) Close() error {
	b.closing.Store(true)
	if r := b.now.Load(); r != nil {
		r.end("")
	}
	b.running.Lock()
	defer b.running.Unlock()
	if b.dir == "" {
		return nil
	}
	for _, p := range b.places {
		_ = volume.Walk(p.Dir, func(volume.Entry) bool { return true }) // makes what was closed to us ours again
		p.Dir.Close()
	}
	err := errors.Join(os.RemoveAll(b.dir), b.held.Close())
	b.dir = ""
	return err
}

// used adds up what is in the sandbox's folders.
func (b *instance) used() (bytes, inodes int64) {
	for _, p := range b.places[:2] { // all others of a workspace are below these
		_ = volume.Walk(p.Dir, func(e volume.Entry) bool {
			bytes += e.Stat.Blocks * 512
			inodes++
			return true
		})
	}
	return bytes, inodes
}

// Probe makes a sandbox and tests it from inside.
func (d *Driver) Probe(ctx context.Context) sandbox.Report {
	r := sandbox.Report{Driver: d.Name(), OK: true}
	have := fmt.Sprintf("ABI %d", landlock.ABI())
	var err error
	if landlock.ABI() < needABI {
		err = sandbox.WithHint(errors.New(have),
			"Linux 6.12 or later, with landlock among the modules of the boot option lsm=")
	}
	r.Add(sandbox.Checked("Landlock", true, have, err), sandbox.Checked("contained", true,
		"a command in a sandbox could not write to the host, read /proc or /etc/hostname, nor signal its parent",
		d.look(ctx)))
	for _, p := range promises {
		if !p.Held {
			r.Add(sandbox.Ability{Name: p.Class, What: p.Why,
				Hint: "use isolation namespace where the machine gives it"})
		}
	}
	return r
}

// look runs a command that tries what must not work, and says what did.
func (d *Driver) look(ctx context.Context) error {
	b, err := d.Start(ctx, probeProfile())
	if err != nil {
		return err
	}
	defer b.Close()
	outside, err := os.CreateTemp("", "waldo-probe-")
	if err != nil {
		return err
	}
	defer os.Remove(outside.Name())
	defer outside.Close()
	if err := os.Chmod(outside.Name(), 0o666); err != nil {
		return err
	}
	// In the text: a path that is an argument would be taken for one of the sandbox's own.
	const try = `kill -0 $PPID 2>/dev/null && echo signal
(echo x >'%s') 2>/dev/null && echo write
(read x </proc/self/status) 2>/dev/null && echo proc
(read x </etc/hostname) 2>/dev/null && echo read
(echo x >file) 2>/dev/null || echo workspace
echo done`
	f, err := b.Run(ctx, sandbox.Command{Argv: []string{"/bin/sh", "-c", fmt.Sprintf(try, outside.Name())},
		Env: []string{"PATH=/usr/bin:/bin"}})
	if err != nil {
		return err
	}
	if f.Stdout != "done\n" || f.Status != facts.OK {
		return fmt.Errorf("the sandbox is not what it should be: %s %q %q", f.Status, f.Stdout, f.Stderr)
	}
	return nil
}

var _ sandbox.Driver = (*Driver)(nil)
