//go:build linux

package cgroup

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
)

// The controllers that bound a run.
const (
	memory = "memory"
	pids   = "pids"
	cpu    = "cpu"
	cpuacc = "cpuacct" // version 1 counts processor time apart
)

// Host describes the machine's cgroups that this process can use. The zero Host has none.
type Host struct {
	unified string            // the version 2 group beneath which runs get theirs; empty: none
	in2     []string          // the controllers that groups beneath unified have
	v1      map[string]string // controller to version 1 group beneath which runs get theirs
	why     []string          // the groups that were examined, and why each is unusable
	names   naming            // of groups
	prefix  string            // of the names of this process's groups
	sys     system
}

// system holds the dependencies that tests replace.
type system struct {
	proc  string
	mkdir func(string) error
	rmdir func(string) error
	write func(path, value string) error
	may   func(path string) bool // may write
}

func realSystem() system {
	return system{
		proc:  "/proc",
		mkdir: func(p string) error { return unix.Mkdir(p, 0o755) },
		rmdir: unix.Rmdir,
		write: writeExisting,
		may:   func(p string) bool { return unix.Faccessat(unix.AT_FDCWD, p, unix.W_OK, unix.AT_EACCESS) == nil },
	}
}

// writeExisting writes in one call and never makes a file. It repeats a write that a signal interrupts: lowering a
// limit of memory waits until the kernel has taken what is above it.
func writeExisting(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	for err = unix.EINTR; err == unix.EINTR; {
		_, err = unix.Write(fd, []byte(value))
	}
	if err != nil {
		return &fs.PathError{Op: "write " + value + " to", Path: path, Err: err}
	}
	return nil
}

// Prefix returns what the names of this process's groups begin with.
func (h *Host) Prefix() string { return h.prefix }

// Detect finds out what may be used. It changes nothing.
func Detect() (*Host, error) { return detect(realSystem()) }

func detect(s system) (*Host, error) {
	names, err := ownNaming(s.proc)
	if err != nil {
		return nil, err
	}
	prefix, err := names.prefixOf(s.proc, os.Getpid())
	if err != nil {
		return nil, err
	}
	h := &Host{v1: map[string]string{}, names: names, prefix: prefix, sys: s}
	own, err := ownGroups(s.proc)
	if err != nil {
		return nil, err
	}
	mounts, err := mounted(s.proc)
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		if m.kind == "cgroup2" {
			if h.unified == "" { // it may be mounted more than once
				h.findUnified(m, own[""])
			}
			continue
		}
		for _, c := range []string{memory, pids, cpu, cpuacc} {
			if slices.Contains(m.controllers, c) {
				h.findV1(c, m, own[c])
			}
		}
	}
	if len(mounts) == 0 {
		h.why = append(h.why, "no cgroup filesystem is mounted")
	}
	return h, nil
}

// findUnified climbs from our own group to the first that bounds memory and processes of the
// groups beneath it and lets us make some. Without one, the first that lets us make groups still
// serves to end and to time a tree.
func (h *Host) findUnified(m mount, own string) {
	fallback := ""
	for dir := m.path(own); ; dir = filepath.Dir(dir) {
		ok := h.sys.may(dir) && h.sys.may(filepath.Join(dir, "cgroup.procs"))
		enabled := strings.Fields(read(dir, "cgroup.subtree_control"))
		if ok && slices.Contains(enabled, memory) && slices.Contains(enabled, pids) {
			h.unified, h.in2 = dir, enabled
			return
		}
		if ok && fallback == "" {
			fallback = dir
			h.in2 = enabled
		}
		if dir == m.point || len(dir) <= len(m.point) {
			break
		}
	}
	h.unified = fallback
	if fallback == "" {
		h.why = append(h.why, "version 2: no group from "+m.path(own)+" upwards may be written by this user")
	} else if len(strings.Fields(read(m.point, "cgroup.controllers"))) > 0 {
		h.why = append(h.why, "version 2: no group from "+m.path(own)+
			" upwards has memory and pids in cgroup.subtree_control")
	}
}

func (h *Host) findV1(c string, m mount, own string) {
	dir := m.path(own)
	if !h.sys.may(dir) {
		h.why = append(h.why, "version 1: "+dir+" may not be written by this user")
		return
	}
	h.v1[c] = dir
}

// has says in which way a controller may be used: 2, 1, or 0 for not at all.
func (h *Host) has(c string) int {
	switch {
	case h.unified != "" && slices.Contains(h.in2, c):
		return 2
	case h.v1[c] != "":
		return 1
	}
	return 0
}

// Memory reports whether the memory of a run can be bounded and counted.
func (h *Host) Memory() bool { return h.has(memory) > 0 }

// Pids reports whether the processes and threads of a run can be bounded and counted.
func (h *Host) Pids() bool { return h.has(pids) > 0 }

// CPUs reports whether the processors that a run uses at one time can be bounded.
func (h *Host) CPUs() bool { return h.has(cpu) > 0 }

// Times reports whether the processor time of a whole run can be read.
func (h *Host) Times() bool { return h.unified != "" || h.v1[cpuacc] != "" }

// Kills reports whether a whole run can be ended through its group.
func (h *Host) Kills() bool { return h.unified != "" || h.has(pids) > 0 }

// EndsAtOnce reports whether the kernel ends all processes of a run's group at a word: version 2 from Linux 5.14 on.
func (h *Host) EndsAtOnce() bool {
	g, err := h.New(NewID(), Limits{Memory: 1 << 20, Pids: 1})
	if err != nil {
		return false
	}
	killer := g.Killer()
	if killer != nil {
		_ = killer.Close()
	}
	return g.Close() == nil && killer != nil
}

// Report makes a group, bounds it, reads the bounds back and removes it, and says what held.
func (h *Host) Report() []sandbox.Ability {
	hint := "start waldo in a delegated group: systemd-run --user --scope -p Delegate=yes waldo ..., or as root"
	if os.Geteuid() == 0 { // whose group has what the groups above let it have
		hint = "start waldo in a delegated group: systemd-run --scope -p Delegate=yes waldo ..."
	}
	if len(h.why) > 0 {
		hint += " (" + strings.Join(h.why, "; ") + ")"
	}
	g, err := h.New("probe", Limits{Memory: 64 << 20, Pids: 16, MilliCPU: 500})
	if err == nil {
		defer g.Close()
	}
	out := make([]sandbox.Ability, 0, 5)
	for _, a := range []struct {
		name, c, file1, file2, want string
		ok                          bool
	}{
		{"cgroup memory", memory, "memory.limit_in_bytes", "memory.max", "67108864", h.Memory()},
		{"cgroup pids", pids, "pids.max", "pids.max", "16", h.Pids()},
		{"cgroup cpu", cpu, "cpu.cfs_quota_us", "cpu.max", "50000", h.CPUs()},
	} {
		b := sandbox.Ability{Name: a.name, OK: a.ok, Hint: hint, What: "no cgroup of this user's has this controller"}
		if a.ok && err != nil {
			b.OK, b.What = false, err.Error()
		}
		if b.OK {
			file := a.file1
			if h.has(a.c) == 2 {
				file = a.file2
			}
			got := strings.Fields(read(g.dir(a.c), file) + " -")[0]
			b.OK, b.What = got == a.want, fmt.Sprintf("version %d: set %s to %s, read %s", h.has(a.c), file, a.want, got)
		}
		if b.OK {
			b.Hint = ""
		}
		out = append(out, b)
	}
	for _, a := range []struct {
		name, what string
		ok         bool
	}{
		{"cgroup processor time", "the time of a whole tree can be read", h.Times()},
		{"cgroup kill", "a whole tree can be ended at once", h.Kills()},
	} {
		b := sandbox.Ability{Name: a.name, OK: a.ok && err == nil, What: a.what}
		if !b.OK {
			b.What, b.Hint = "no group can be made", hint
		}
		out = append(out, b)
	}
	return out
}

// mount is one mounted cgroup hierarchy.
type mount struct {
	root, point, kind string
	controllers       []string
}

// path is the folder that shows the group here; groups outside what the mount shows give its top.
func (m mount) path(group string) string {
	rel, err := filepath.Rel(m.root, group)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return m.point
	}
	return filepath.Join(m.point, rel)
}

// mounted reads the cgroup mounts from mountinfo (proc(5)).
func mounted(proc string) ([]mount, error) {
	b, err := os.ReadFile(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	return parseMounts(b), nil
}

func parseMounts(b []byte) []mount {
	var out []mount
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		left, right, ok := strings.Cut(s.Text(), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 3 || r[0] != "cgroup" && r[0] != "cgroup2" {
			continue
		}
		out = append(out, mount{root: unescape(l[3]), point: unescape(l[4]), kind: r[0],
			controllers: strings.Split(r[2], ",")})
	}
	return out
}

// unescape undoes the \ooo of mountinfo.
func unescape(s string) string {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out = append(out, byte(n))
				i += 3
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

// ownGroups reads our group in each hierarchy (cgroups(7)); version 2 has the empty name.
func ownGroups(proc string) (map[string]string, error) {
	b, err := os.ReadFile(filepath.Join(proc, "self/cgroup"))
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	out := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		f := strings.SplitN(line, ":", 3)
		if len(f) < 3 {
			continue
		}
		for _, c := range strings.Split(f[1], ",") {
			out[c] = f[2]
		}
	}
	return out, nil
}

// read returns a file of a group without its last newline. It returns "" if the file cannot be read.
func read(dir, file string) string {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n")
}
