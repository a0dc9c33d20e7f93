//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"

	"waldo/internal/sandbox/gvisor/job"
)

// guest is a gVisor that is up, with nothing in it but a first process of ours that sleeps.
type guest struct {
	dir    string // gVisor's folder for this container
	conf   *config.Config
	c      *container.Container
	notes  *notes
	places []string // the writable folders
	err    error
	up     chan struct{} // closed when it is up, or err says why not
	killed atomic.Bool
	ending sync.Once
}

// boot starts a guest in the background.
func boot(b job.Sandbox, number int) *guest {
	g := &guest{dir: fmt.Sprintf("%s/%d", guestsDir, number), up: make(chan struct{})}
	go func() {
		defer close(g.up)
		g.err = g.boot(b)
	}()
	return g
}

// wait waits until the guest is up.
func (g *guest) wait() error {
	<-g.up
	return g.err
}

const (
	containerID = "sandbox"
	initUID     = 1<<31 - 2 // of the first process: not the user of the commands, who must not touch it
)

func (g *guest) boot(b job.Sandbox) (err error) {
	for _, n := range b.Tree {
		if n.Kind == job.Tmpfs {
			g.places = append(g.places, rootDir+n.Path)
		}
	}
	s := spec(b)
	if err := g.arrange(s, b.Limits); err != nil {
		return err
	}
	flags := g.flags()
	if len(b.Egress.Sockets) > 0 {
		flags["network"] = "host" // our own namespace, of which waldo holds every egress
	}
	if g.conf, err = settings(flags); err != nil {
		return err
	}
	first, err := job.Sleeper()
	if err != nil {
		return err
	}
	defer first.Close()
	// gVisor takes the streams of the first process from its own, which are /dev/null.
	g.c, err = container.New(g.conf, container.Args{ID: containerID, Spec: s, BundleDir: g.dir, Attached: true,
		ExecFile: first})
	if err != nil {
		return fmt.Errorf("making a gVisor: %w", err)
	}
	g.notes = latest.Swap(nil)
	if g.notes == nil {
		return errors.New("gVisor did not load what bounds its processes")
	}
	if err := g.c.Start(g.conf); err != nil {
		return fmt.Errorf("starting a gVisor: %w", err)
	}
	return nil
}

// arrange writes the files from which gVisor takes what to run and how. There the first process
// has a user of its own; gVisor's processes on this machine have the one that is mapped.
func (g *guest) arrange(s *specs.Spec, l job.Limits) error {
	if err := os.Mkdir(g.dir, 0o700); err != nil {
		return err
	}
	inside := *s.Process
	inside.User = specs.User{UID: initUID, GID: initUID}
	copied := *s
	copied.Process = &inside
	text, err := json.Marshal(copied)
	if err != nil {
		return err
	}
	sink, err := sinkSettings(l.Pids + 1) // the first process counts too
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(g.dir, "config.json"), text, 0o600),
		os.WriteFile(g.sinkFile(), sink, 0o600))
}

func (g *guest) sinkFile() string { return filepath.Join(g.dir, "sink.json") }

// kill ends gVisor's kernel, and with it everything that it runs.
func (g *guest) kill() {
	g.killed.Store(true)
	if g.wait() != nil {
		return
	}
	for _, pid := range []int{g.c.SandboxPid(), g.c.GoferPid.Load()} {
		if pid > 1 {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// end ends the guest and removes what gVisor keeps of it.
func (g *guest) end() {
	g.ending.Do(func() {
		<-g.up
		if g.c != nil {
			_ = g.c.Destroy()
		}
		_ = os.RemoveAll(g.dir)
		if g.notes != nil {
			g.notes.unmap()
		}
	})
}

// tell adds what the kernel in the sandbox noted.
func (g *guest) tell(end *job.End) {
	end.Pids, end.PidsDenied, end.Denials = max(g.notes.peak.Load()-1, 1), g.notes.refused.Load() > 0, g.notes.denials()
}

// flags are gVisor's settings, each of which differs from its default for a reason.
func (g *guest) flags() map[string]string {
	return map[string]string{
		"root":                    filepath.Join(g.dir, "state"),
		"pod-init-config":         g.sinkFile(),
		"platform":                "systrap",
		"network":                 "none",   // a loopback of its own and nothing else
		"ignore-cgroups":          "true",   // waldo has put us in one
		"overlay2":                "none",   // the root is read-only, the rest is ours
		"directfs":                "false",  // no more powers for the sandbox's kernel than it needs
		"file-access-mounts":      "shared", // writes reach the host at once, even if gVisor is killed
		"host-uds":                "none",
		"oci-seccomp":             "true",
		"host-settings":           "ignore",
		"app-huge-pages":          "false",
		"gofer-network-namespace": "new",
		"sidecar-usage-policy":    "LEGACY_DEPRECATED_SLOW_EMBEDDED_FALLBACK", // one executable
	}
}

func settings(flags map[string]string) (*config.Config, error) {
	set := flag.NewFlagSet("gvisor", flag.ContinueOnError)
	config.RegisterFlags(set)
	for name, value := range flags {
		if err := set.Set(name, value); err != nil {
			return nil, fmt.Errorf("gVisor's setting %s: %w", name, err)
		}
	}
	if d := os.Getenv("WALDO_GVISOR_DEBUG"); d != "" {
		_ = set.Set("debug", "true")
		_ = set.Set("debug-log", d)
		_ = set.Set("panic-log", d)
	}
	return config.NewFromFlags(set)
}

// spec describes the container: its root, its user and its limits. Its first process is ours.
func spec(b job.Sandbox) *specs.Spec {
	limit := func(name string, n int64) specs.POSIXRlimit {
		return specs.POSIXRlimit{Type: name, Soft: uint64(n), Hard: uint64(n)}
	}
	s := &specs.Spec{
		Version:  "1.0.0",
		Hostname: b.Hostname,
		Root:     &specs.Root{Path: rootDir, Readonly: true},
		Process: &specs.Process{
			User:            specs.User{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())},
			Args:            []string{"init"},
			Env:             []string{"HOME=/"},
			Cwd:             "/",
			Capabilities:    &specs.LinuxCapabilities{},
			NoNewPrivileges: true,
			Rlimits: []specs.POSIXRlimit{
				limit("RLIMIT_NOFILE", b.Limits.Files), limit("RLIMIT_CORE", 0), limit("RLIMIT_NPROC", b.Limits.Pids+8),
				limit("RLIMIT_FSIZE", b.Limits.Disk), limit("RLIMIT_AS", 0xfffffff00000), limit("RLIMIT_MEMLOCK", 64<<10),
			},
		},
		Linux: &specs.Linux{
			Seccomp: filter(),
			Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.MountNamespace}, {Type: specs.UserNamespace}},
			UIDMappings: []specs.LinuxIDMapping{{ContainerID: uint32(os.Getuid()), HostID: uint32(os.Getuid()), Size: 1}},
			GIDMappings: []specs.LinuxIDMapping{{ContainerID: uint32(os.Getgid()), HostID: uint32(os.Getgid()), Size: 1}},
		},
		Mounts: []specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc"}},
	}
	if len(b.Egress.Sockets) == 0 {
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	}
	for _, n := range b.Tree {
		if n.Kind == job.Tmpfs {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: n.Path, Type: "bind", Source: rootDir + n.Path,
				Options: []string{"rbind", "rw", "nosuid", "nodev"}})
		}
	}
	return s
}
