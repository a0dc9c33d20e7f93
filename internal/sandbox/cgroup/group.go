//go:build linux

package cgroup

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
)

// Limits bound one run.
type Limits struct {
	Memory   int64 // bytes, with swap; New refuses 0
	Pids     int64 // processes and threads; New refuses 0
	MilliCPU int64 // thousandths of a processor at one time; 0: as many as there are
}

// Usage is the use of a tree so far, by the kernel's count.
type Usage struct {
	CPU        time.Duration // user and system; 0 where nothing counts it
	MemoryPeak int64         // bytes, page cache of the tree's own files in
	PidsPeak   int64
	OOMKills   int64 // processes ended for want of memory
	PidsDenied int64 // forks refused at the limit
}

// Group is the cgroup of one run. A process joins it before it runs any code of the run: by clone3 with
// CLONE_INTO_CGROUP and CloneFD, and, while it has one thread, by writing "0" to each of JoinFDs. Without
// clone3, write its number to UnifiedFD. That takes up to 10 ms, during which the kernel stops all forks of the
// machine. The first two ways do not stop them.
type Group struct {
	CloneFD   int   // the version 2 group as a folder; -1: none
	UnifiedFD int   // its cgroup.procs; -1: none
	JoinFDs   []int // the file tasks of the version 1 groups

	h       *Host
	name    string
	unified string
	part    int  // of how many busy groups of its owner it is one, as set in the kernel; 0: of one
	moving  bool // not all its processes are in the version 2 group yet
	v1      map[string]string
	mu      sync.Mutex
	counts  map[string]int // descriptors of the files that Usage and PidsNow read, open from the first use on
}

// New makes a group and sets the limits that the host supports: see Memory, Pids and CPUs of Host. The id is 1
// to 64 lower-case letters, digits and '_'.
func (h *Host) New(id string, l Limits) (*Group, error) { return h.make(id, l, h.unified != "") }

// NewForked is New for a process that cannot be born in its group, as those that are forked by others
// than waldo: without version 2 where version 1 bounds and counts everything.
func (h *Host) NewForked(id string, l Limits) (*Group, error) {
	alone := h.has(memory) == 1 && h.has(pids) == 1 && h.has(cpu) == 1 && h.v1[cpuacc] != ""
	return h.make(id, l, h.unified != "" && !alone)
}

func (h *Host) make(id string, l Limits, unified bool) (*Group, error) {
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", id, err)
	}
	if !validID(id) {
		return nil, fmt.Errorf("cgroup id %q: want 1 to 64 of a-z, 0-9 and _", id)
	}
	g := &Group{CloneFD: -1, UnifiedFD: -1, h: h, v1: map[string]string{}, counts: map[string]int{}}
	if err := g.build(h.Prefix()+id, l, unified); err != nil {
		return nil, errors.Join(fmt.Errorf("cgroup %s: %w", id, err), g.Close())
	}
	return g, nil
}

// NewID makes a name for a group that no other has.
func NewID() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("s_%x", b)
}

func validID(id string) bool {
	return len(id) >= 1 && len(id) <= 64 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

func (g *Group) build(name string, l Limits, unified bool) error {
	g.name = name
	if unified {
		if err := g.unify(); err != nil {
			return err
		}
	}
	for _, c := range g.controllers1() {
		if err := g.make1(c, name); err != nil {
			return err
		}
	}
	return g.bound(l)
}

// unify makes the version 2 group.
func (g *Group) unify() error {
	dir := filepath.Join(g.h.unified, g.name)
	if err := g.h.sys.mkdir(dir); err != nil {
		return fmt.Errorf("mkdir %s: %w", dir, err)
	}
	g.unified = dir
	if err := g.open(dir, &g.CloneFD, unix.O_DIRECTORY|unix.O_RDONLY); err != nil {
		return err
	}
	return g.open(filepath.Join(dir, "cgroup.procs"), &g.UnifiedFD, unix.O_WRONLY)
}

// controllers1 lists the version 1 controllers that this group needs.
func (g *Group) controllers1() []string {
	var out []string
	for _, c := range []string{memory, pids, cpu} {
		if g.h.has(c) == 1 {
			out = append(out, c)
		}
	}
	if g.unified == "" && g.h.v1[cpuacc] != "" {
		out = append(out, cpuacc) // version 2 times every group; only without it is this needed
	}
	return out
}

func (g *Group) make1(c, name string) error {
	dir := filepath.Join(g.h.v1[c], name)
	err := g.h.sys.mkdir(dir)
	if err == unix.EEXIST && g.owns(dir) {
		err = nil // cpu and cpuacct are mounted together: one folder for both
	} else if err == nil {
		fd := -1
		if err = g.open(filepath.Join(dir, "tasks"), &fd, unix.O_WRONLY); err == nil {
			g.JoinFDs = append(g.JoinFDs, fd)
		} else {
			return errors.Join(err, g.h.sys.rmdir(dir))
		}
	}
	if err != nil {
		return fmt.Errorf("mkdir %s: %w", dir, err)
	}
	g.v1[c] = dir
	return nil
}

// owns reports whether this group made the folder: two controllers may share one mount.
func (g *Group) owns(dir string) bool {
	for _, d := range g.v1 {
		if d == dir {
			return true
		}
	}
	return false
}

func (g *Group) open(path string, fd *int, flags int) error {
	n, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	*fd = n
	return nil
}

// Join puts a process of this pid namespace into the group, with all its threads. Its earlier use is not
// counted.
func (g *Group) Join(pid int) error {
	err := g.JoinUnified(pid)
	for _, dir := range g.v1 {
		if werr := g.h.sys.write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid)); werr != nil {
			err = errors.Join(err, fmt.Errorf("cgroup: process %d cannot join: %w", pid, werr))
		}
	}
	return err
}

// JoinUnified is Join for the version 2 group alone.
func (g *Group) JoinUnified(pid int) error {
	if g.UnifiedFD < 0 {
		return nil
	}
	if _, err := unix.Pwrite(g.UnifiedFD, strconv.AppendInt(nil, int64(pid), 10), 0); err != nil {
		return fmt.Errorf("cgroup: process %d cannot join: %w", pid, err)
	}
	return nil
}

// Bound gives a group other limits than it was made with.
func (g *Group) Bound(l Limits) error {
	if err := l.check(); err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return g.bound(l)
}

func (l Limits) check() error {
	if l.Memory <= 0 || l.Pids <= 0 || l.MilliCPU < 0 {
		return fmt.Errorf("limits %+v: memory and pids must be above zero", l)
	}
	return nil
}

// dir is where a controller of this group has its files; empty: nowhere.
func (g *Group) dir(c string) string {
	if g.h.has(c) == 2 {
		return g.unified
	}
	return g.v1[c]
}

// period is how often the kernel renews a run's share of the processors, in microseconds.
const period = 100_000

// bound writes the limits. Swap counts as memory; a run out of memory ends as a whole.
func (g *Group) bound(l Limits) error {
	var errs []error
	set := func(c, file, value string) {
		errs = append(errs, g.h.sys.write(filepath.Join(g.dir(c), file), value))
	}
	try := func(c, file, value string) { // not every kernel has it
		if err := g.h.sys.write(filepath.Join(g.dir(c), file), value); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, err)
		}
	}
	mem := strconv.FormatInt(l.Memory, 10)
	switch g.h.has(memory) {
	case 2:
		set(memory, "memory.max", mem)
		try(memory, "memory.swap.max", "0")
		try(memory, "memory.oom.group", "1")
	case 1:
		set(memory, "memory.limit_in_bytes", mem)
		try(memory, "memory.memsw.limit_in_bytes", mem)
		try(memory, "memory.kmem.tcp.limit_in_bytes", mem)
	}
	if g.h.has(pids) > 0 {
		set(pids, "pids.max", strconv.FormatInt(l.Pids, 10))
	}
	if quota := l.MilliCPU * period / 1000; l.MilliCPU > 0 {
		quota = max(quota, 1000) // the least that the kernel takes
		switch g.h.has(cpu) {
		case 2:
			set(cpu, "cpu.max", fmt.Sprintf("%d %d", quota, period))
		case 1:
			set(cpu, "cpu.cfs_period_us", strconv.Itoa(period))
			set(cpu, "cpu.cfs_quota_us", strconv.FormatInt(quota, 10))
		}
	}
	return errors.Join(errs...)
}

// CPU reads the processor time of the tree alone; 0 where nothing counts it.
func (g *Group) CPU() time.Duration {
	switch {
	case g.v1[cpuacc] != "":
		return time.Duration(number(g.count(g.v1[cpuacc], "cpuacct.usage")))
	case g.unified != "":
		return time.Duration(field(g.count(g.unified, "cpu.stat"), "usage_usec")) * time.Microsecond
	}
	return 0
}

// Spent reads what the tree uses at this moment.
func (g *Group) Spent() sandbox.Use {
	u := sandbox.Use{CPU: g.CPU()}
	now, peak := "memory.current", "memory.peak"
	switch g.h.has(memory) {
	case 0:
		return u
	case 1:
		now, peak = "memory.usage_in_bytes", "memory.max_usage_in_bytes"
	}
	dir := g.dir(memory)
	u.Memory, u.Peak = number(g.count(dir, now)), number(g.count(dir, peak))
	return u
}

// Usage reads the use of the tree. A value that the machine does not count is 0.
func (g *Group) Usage() Usage {
	u := Usage{CPU: g.CPU()}
	switch dir := g.dir(memory); g.h.has(memory) {
	case 2:
		u.MemoryPeak = number(g.count(dir, "memory.peak"))
		u.OOMKills = field(g.count(dir, "memory.events"), "oom_kill")
	case 1:
		u.MemoryPeak = number(g.count(dir, "memory.max_usage_in_bytes"))
		u.OOMKills = field(g.count(dir, "memory.oom_control"), "oom_kill")
	}
	if g.h.has(pids) > 0 {
		u.PidsPeak = number(g.count(g.dir(pids), "pids.peak"))
		u.PidsDenied = field(g.count(g.dir(pids), "pids.events"), "max")
	}
	return u
}

// PidsNow counts the processes and threads in the group at this moment, those that have ended and
// are not reaped too; 0 where nothing counts them.
func (g *Group) PidsNow() int64 {
	if g.h.has(pids) == 0 {
		return 0
	}
	return number(g.count(g.dir(pids), "pids.current"))
}

// count reads a file of the group, as read does, without opening it twice.
func (g *Group) count(dir, file string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	path := dir + "/" + file
	fd, ok := g.counts[path]
	if !ok {
		var err error
		if fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			fd = -1
		}
		g.counts[path] = fd
	}
	var b [1024]byte // cpu.stat, the longest, is shorter
	n, err := unix.Pread(fd, b[:], 0)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b[:n]), "\n")
}

// number reads a decimal number. It returns 0 if s holds none.
func number(s string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	return n
}

// field reads the number behind a word at the start of a line.
func field(text, word string) int64 {
	for _, line := range strings.Split(text, "\n") {
		if name, value, ok := strings.Cut(line, " "); ok && name == word {
			return number(value)
		}
	}
	return 0
}
