//go:build linux

package cgroup

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Kill ends every process of the group. With cgroup.kill it returns when all have been signalled. Without it,
// Kill first forbids new processes, so that no chain of forks outruns it, and returns when all are gone.
func (g *Group) Kill() error {
	dirs := make([]string, 0, 4)
	if g.unified != "" {
		dirs = append(dirs, g.unified)
	}
	for _, c := range []string{pids, memory, cpu, cpuacc} {
		if g.v1[c] != "" {
			dirs = append(dirs, g.v1[c])
		}
	}
	return g.h.kill(dirs)
}

// Killer opens cgroup.kill of the group. A holder of the file can end every process of the group at once. It
// returns nil if this machine has no cgroup.kill.
func (g *Group) Killer() *os.File {
	if g.unified == "" {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(g.unified, "cgroup.kill"), os.O_WRONLY, 0)
	if err != nil {
		return nil
	}
	return f
}

// End is Kill, and returns when nothing of the group runs any more. It needs version 2.
func (g *Group) End() error {
	err := g.Kill()
	for end := time.Now().Add(patience); err == nil &&
		field(read(g.unified, "cgroup.events"), "populated") != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			err = fmt.Errorf("cgroup: processes do not end within %v", patience)
		}
	}
	return err
}

// kill ends the processes in the folders of one group. The kernel does it at once if it can. Otherwise kill
// walks the list until the list is empty: a fork under way is not on it yet.
func (h *Host) kill(dirs []string) error {
	for _, d := range dirs {
		err := h.sys.write(filepath.Join(d, "cgroup.kill"), "1")
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	for _, d := range dirs {
		if err := h.sys.write(filepath.Join(d, "pids.max"), "0"); err == nil {
			break
		}
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		left := 0
		for _, d := range dirs {
			for _, pid := range strings.Fields(read(d, "cgroup.procs")) {
				left++
				endOne(d, pid)
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("cgroup: %d processes do not end", left)
		}
	}
}

// endOne kills one process of the group. The list is read again once the process is held by a
// pidfd, because between the two its number may have gone to a stranger.
func endOne(dir, pid string) {
	n, err := strconv.Atoi(pid)
	if err != nil || n <= 1 || n == os.Getpid() {
		return
	}
	fd, err := unix.PidfdOpen(n, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for _, again := range strings.Fields(read(dir, "cgroup.procs")) {
		if again == pid {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
	}
}

// patience is how long Kill and Close wait for ended processes to leave, and Freeze for others to stop.
const patience = 10 * time.Second

// Close ends what is left in the group and removes it. It may be called again.
func (g *Group) Close() error {
	for _, fd := range append([]int{g.CloneFD, g.UnifiedFD}, g.JoinFDs...) {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	g.CloneFD, g.UnifiedFD, g.JoinFDs = -1, -1, nil
	g.mu.Lock()
	for _, fd := range g.counts {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	g.counts = map[string]int{}
	g.mu.Unlock()
	var dirs []string
	if g.unified != "" {
		dirs = append(dirs, g.unified)
	}
	for _, d := range g.v1 {
		dirs = append(dirs, d)
	}
	err := g.h.remove(dirs, patience)
	if err == nil {
		g.unified, g.v1 = "", map[string]string{}
	}
	return err
}

// remove removes the folders of one group. It kills again processes that prevent that.
func (h *Host) remove(dirs []string, patience time.Duration) error {
	end := time.Now().Add(patience)
	var errs []error
	for _, d := range dirs {
		for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
			err := h.sys.rmdir(d)
			if err == nil || errors.Is(err, unix.ENOENT) {
				break
			}
			if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
				errs = append(errs, fmt.Errorf("cgroup: removing %s: %w", d, err))
				break
			}
			_ = h.kill(dirs)
			time.Sleep(pause)
		}
	}
	return errors.Join(errs...)
}

// Sweep removes the groups that ended waldo processes of this pid namespace left behind, and kills the
// processes in them. It returns the names of the groups. It touches no other group.
func (h *Host) Sweep() ([]string, error) {
	left := map[string][]string{}
	bases := []string{h.unified}
	for _, d := range h.v1 {
		bases = append(bases, d)
	}
	for _, base := range bases {
		if base == "" {
			continue
		}
		entries, err := os.ReadDir(base)
		if err != nil {
			return nil, fmt.Errorf("cgroup: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() && h.others(e.Name()) {
				left[e.Name()] = append(left[e.Name()], filepath.Join(base, e.Name()))
			}
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	live, err := h.live() // after the groups were listed: none of a process that began since is among them
	if err != nil {
		return nil, err
	}
	var names []string
	var errs []error
	for name, dirs := range left {
		if live[prefixOf(name)] {
			continue
		}
		names = append(names, name)
		errs = append(errs, h.kill(dirs), h.remove(dirs, patience))
	}
	return names, errors.Join(errs...)
}

// others reports whether another waldo process made the name, in this pid namespace.
func (h *Host) others(name string) bool {
	f := strings.Split(name, "-")
	mine := strings.Split(h.prefix, "-")
	return len(f) == 4 && f[0] == "waldo" && f[1] == mine[1] && len(f[2]) == len(mine[2]) &&
		f[2] != mine[2] && validID(f[3])
}

// prefixOf returns the part of a group's name that names its process.
func prefixOf(name string) string { return name[:strings.LastIndexByte(name, '-')+1] }

// live returns the prefixes of the names that the processes in sight have or would have.
func (h *Host) live() (map[string]bool, error) {
	entries, err := os.ReadDir(h.sys.proc)
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	out := map[string]bool{}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		start, err := startTime(h.sys.proc, e.Name())
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) { // hidepid: of another user
			continue
		}
		if err != nil { // not to be known: leave all
			return nil, fmt.Errorf("cgroup: %w", err)
		}
		out[h.names.prefix(e.Name(), start)] = true
	}
	return out, nil
}

// naming makes the names of groups.
type naming struct{ key, space string }

// prefix names a process for good. The name tells neither its number nor its start: commands of one named sandbox read
// the names of each other's groups in /proc. The key is not in their sight.
func (n naming) prefix(pid, start string) string {
	tag := func(size int, of ...string) string {
		m := hmac.New(sha256.New, []byte(n.key))
		fmt.Fprintf(m, "%q", of)
		return fmt.Sprintf("%x", m.Sum(nil)[:size])
	}
	return fmt.Sprintf("waldo-%s-%s-", tag(4, n.space), tag(8, n.space, pid, start))
}

// ownNaming returns the names' key, the number of this start of the machine, and the pid namespace of this process.
func ownNaming(proc string) (n naming, err error) {
	if n.space, err = os.Readlink(filepath.Join(proc, "self/ns/pid")); err != nil {
		return n, fmt.Errorf("cgroup: is /proc mounted? %w", err)
	}
	key, err := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return n, fmt.Errorf("cgroup: %w", err)
	}
	n.key = string(key)
	return n, nil
}

// PrefixOf returns the beginning of the names of the groups that a running process makes, as seen from this pid
// namespace.
func PrefixOf(pid int) (string, error) {
	n, err := ownNaming("/proc")
	if err != nil {
		return "", err
	}
	return n.prefixOf("/proc", pid)
}

func (n naming) prefixOf(proc string, process int) (string, error) {
	pid := strconv.Itoa(process)
	start, err := startTime(proc, pid)
	if err != nil {
		return "", fmt.Errorf("cgroup: %w", err)
	}
	return n.prefix(pid, start), nil
}

// startTime returns when a process began, in clock ticks since boot (field 22 of stat, proc(5)).
func startTime(proc, pid string) (string, error) {
	b := make([]byte, 1024) // the fields up to it have at most 600 bytes
	fd, err := unix.Open(filepath.Join(proc, pid, "stat"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		var n int
		n, err = unix.Read(fd, b)
		b = b[:max(n, 0)]
		_ = unix.Close(fd)
	}
	if errors.Is(err, unix.ESRCH) {
		err = os.ErrNotExist
	}
	if err != nil {
		return "", err
	}
	i := strings.LastIndexByte(string(b), ')')
	f := strings.Fields(string(b)[i+1:])
	if i < 0 || len(f) < 20 {
		return "", fmt.Errorf("%s/%s/stat: not in the form of proc(5)", proc, pid)
	}
	return f[19], nil
}
