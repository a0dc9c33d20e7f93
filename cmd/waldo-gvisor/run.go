//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"

	"waldo/internal/sandbox/gvisor/job"
)

// run is one command in a gVisor of its own.
type run struct {
	box   job.Box
	ask   job.Run
	files []*os.File
	conn  *job.Conn

	mu     sync.Mutex
	c      *container.Container
	killed bool
}

// flags are gVisor's settings, each of which differs from its default for a reason.
func flags() map[string]string {
	return map[string]string{
		"root":                    stateDir,
		"pod-init-config":         sinkFile,
		"platform":                "systrap",
		"network":                 "none",      // a loopback of its own and nothing else
		"ignore-cgroups":          "true",      // waldo has put us in one
		"overlay2":                "none",      // the root is read-only, the rest is ours
		"directfs":                "false",     // no more powers for the kernel in the box than it needs; it costs nothing here
		"file-access-mounts":      "exclusive", // nobody else writes there
		"host-uds":                "none",
		"host-settings":           "ignore",
		"app-huge-pages":          "false",
		"gofer-network-namespace": "new",
		"sidecar-usage-policy":    "LEGACY_DEPRECATED_SLOW_EMBEDDED_FALLBACK", // one executable
	}
}

func settings() (*config.Config, error) {
	set := flag.NewFlagSet("gvisor", flag.ContinueOnError)
	config.RegisterFlags(set)
	for name, value := range flags() {
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

func (r *run) spec() *specs.Spec {
	limit := func(name string, n int64) specs.POSIXRlimit {
		return specs.POSIXRlimit{Type: name, Soft: uint64(n), Hard: uint64(n)}
	}
	s := &specs.Spec{
		Version:  "1.0.0",
		Hostname: r.box.Hostname,
		Root:     &specs.Root{Path: rootDir, Readonly: true},
		Process: &specs.Process{
			User:            specs.User{UID: job.UID, GID: job.UID},
			Args:            r.ask.Argv,
			Env:             r.ask.Env,
			Cwd:             r.ask.Dir,
			Capabilities:    &specs.LinuxCapabilities{},
			NoNewPrivileges: true,
			Rlimits: []specs.POSIXRlimit{
				limit("RLIMIT_NOFILE", r.ask.Files), limit("RLIMIT_CORE", 0), limit("RLIMIT_NPROC", 4*r.ask.Pids),
				limit("RLIMIT_FSIZE", r.ask.Disk), limit("RLIMIT_AS", 0xfffffff00000), limit("RLIMIT_MEMLOCK", 64<<10),
			},
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.MountNamespace}, {Type: specs.UserNamespace}},
			UIDMappings: []specs.LinuxIDMapping{{ContainerID: job.UID, HostID: uint32(os.Getuid()), Size: 1}},
			GIDMappings: []specs.LinuxIDMapping{{ContainerID: job.UID, HostID: uint32(os.Getgid()), Size: 1}},
		},
		Mounts: []specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc"}},
	}
	for i, t := range r.box.Tmpfs {
		s.Mounts = append(s.Mounts, specs.Mount{Destination: t.Target, Type: "bind", Source: tmpfsPlace(i), Options: []string{"rw", "nosuid", "nodev"}})
	}
	return s
}

// arrange writes the files from which gVisor takes what to run and how.
func (r *run) arrange() error {
	spec, err := json.Marshal(r.spec())
	if err != nil {
		return err
	}
	sink, err := sinkSettings(r.ask.Pids)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(bundleDir, "config.json"), spec, 0o600), os.WriteFile(sinkFile, sink, 0o600))
}

const sinkFile = bundleDir + "/sink.json"

// do runs the command to its end.
func (r *run) do() (job.End, error) {
	defer func() {
		for _, f := range r.files {
			_ = f.Close()
		}
	}()
	want := 3
	if r.ask.Bridge {
		want = 4
	}
	if len(r.files) != want {
		return job.End{}, fmt.Errorf("%d descriptors came with a command, not %d", len(r.files), want)
	}
	if err := r.arrange(); err != nil {
		return job.End{}, err
	}
	conf, err := settings()
	if err != nil {
		return job.End{}, err
	}
	args := container.Args{ID: containerID, Spec: r.spec(), BundleDir: bundleDir, Attached: true}
	if r.ask.Bridge {
		args.PassFiles = map[int]*os.File{3: r.files[3]}
	}
	// gVisor takes the command's streams from its own.
	os.Stdin, os.Stdout, os.Stderr = r.files[0], r.files[1], r.files[2]
	c, err := container.New(conf, args)
	if err != nil {
		return job.End{}, fmt.Errorf("making a gVisor: %w", err)
	}
	defer func() { _ = c.Destroy() }()
	if !r.hold(c) {
		return job.End{Status: uint32(unix.SIGKILL)}, nil
	}
	return r.start(c, conf)
}

const containerID = "box"

// hold makes the container known to kill, and reports whether it may start.
func (r *run) hold(c *container.Container) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.c = c
	return !r.killed
}

// start runs the command in a gVisor that is up, and watches it.
func (r *run) start(c *container.Container, conf *config.Config) (job.End, error) {
	if err := c.Start(conf); err != nil {
		if e := notExecuted(err); e != 0 {
			return job.End{NoStart: int(e)}, nil
		}
		return job.End{}, fmt.Errorf("starting: %w", err)
	}
	if err := r.conn.Send(job.Answer{Started: &job.Started{}}); err != nil {
		return job.End{}, err
	}
	w := watch(c, r.ask, r.kill)
	ws, err := c.Wait()
	end := w.stop()
	if n := latest.Load(); n != nil {
		end.Pids, end.PidsDenied, end.Denials = n.peak.Load(), n.refused.Load() > 0, n.denials()
	}
	end.Status = uint32(ws)
	r.mu.Lock()
	killed := r.killed
	r.mu.Unlock()
	if killed {
		end.Status = uint32(unix.SIGKILL)
		err = nil
	}
	return end, err
}

// notExecuted returns the error number with which a command could not be executed, 0 when that is
// not what went wrong. gVisor tells it as text.
func notExecuted(err error) unix.Errno {
	text := err.Error()
	told := strings.Contains(text, "error finding executable") || strings.Contains(text, "failed to load") || strings.Contains(text, "working directory")
	for _, e := range []unix.Errno{unix.ENOENT, unix.ENOTDIR, unix.EACCES, unix.ENOEXEC, unix.EISDIR, unix.ELOOP, unix.ENAMETOOLONG, unix.EPERM, unix.E2BIG, unix.EINVAL} {
		if told && strings.HasSuffix(text, e.Error()) {
			return e
		}
	}
	return 0
}

// kill ends gVisor's kernel, and with it everything that it runs.
func (r *run) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killed = true
	if r.c == nil {
		return
	}
	for _, pid := range []int{r.c.SandboxPid(), r.c.GoferPid.Load()} {
		if pid > 1 {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
