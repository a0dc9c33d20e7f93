//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox/gvisor/job"
	"waldo/internal/sandbox/procstat"
)

// interval is the time between two measurements of a running command.
const interval = 10 * time.Millisecond

// watcher measures a running command's use of memory, time and disk, and ends the command at a limit. It sees
// every process of the sandbox, because this process is PID 1 of its namespace.
type watcher struct {
	limits job.Limits
	kill   func()
	before time.Duration // of processor time, when the command started
	memory *os.File      // gVisor's memory: all that the guest holds
	places []string
	began  int64 // bytes that gVisor's own processes held when the watching began

	done chan struct{}

	mu    sync.Mutex // guards before, guest, end and over
	guest int64      // the most that the guest held, in bytes
	end   job.End
	over  bool // watching has ended
}

func watch(g *guest, l job.Limits) *watcher {
	w := &watcher{limits: l, places: g.places, kill: g.kill, memory: guestMemory(g.c.SandboxPid()),
		done: make(chan struct{})}
	w.began = w.own()
	w.forget()
	go func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for w.look() {
			select {
			case <-w.done:
				return
			case <-tick.C:
			}
		}
	}()
	return w
}

// stop ends the watching and returns what was seen.
func (w *watcher) stop() job.End {
	close(w.done)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count()
	w.over = true
	if w.memory != nil {
		_ = w.memory.Close()
	}
	return w.end
}

// look takes one look. It returns false once it has ended the command.
func (w *watcher) look() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return false
	}
	w.count()
	switch {
	case w.end.Memory > w.limits.Memory+job.Slack(w.limits.Memory)+w.limits.Own:
		w.end.Over = "memory"
	case w.guest > w.limits.Memory+job.Slack(w.limits.Memory):
		w.end.Over = "memory"
	case w.limits.CPU > 0 && w.end.CPU > w.limits.CPU:
		w.end.Over = "cpu"
	default:
		return true
	}
	go w.kill()
	return false
}

// count measures the current use.
func (w *watcher) count() {
	held := w.held()
	w.guest = max(w.guest, held)
	w.end.Memory = max(w.end.Memory, held+max(0, w.own()-w.began))
	if w.limits.CPU > 0 {
		w.end.CPU = max(w.end.CPU, processorTime()-w.before)
	}
}

// forget starts the count of processor time anew.
func (w *watcher) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.limits.CPU > 0 {
		w.before, w.end.CPU = processorTime(), 0
	}
}

// held returns the bytes that the guest holds: its memory, and the contents of its volumes.
func (w *watcher) held() int64 {
	var total int64
	if w.memory != nil {
		var st unix.Stat_t
		if err := unix.Fstat(int(w.memory.Fd()), &st); err == nil {
			total += st.Blocks * 512
		}
	}
	for _, p := range w.places {
		var st unix.Statfs_t
		if err := unix.Statfs(p, &st); err == nil {
			total += int64(st.Blocks-st.Bfree) * st.Bsize
		}
	}
	return total
}

// own returns the bytes that gVisor's own processes hold: its kernel keeps what the guest's files, sockets and
// processes are there, and not in the guest's memory. 0 where a cgroup counts it.
func (w *watcher) own() (total int64) {
	if w.limits.Own <= 0 {
		return 0
	}
	for _, pid := range procstat.Children(os.Getpid()) {
		total += procstat.OwnMemory(pid)
	}
	return total
}

// guestMemory opens the file that gVisor keeps its guest's memory in. Nil: it was not found.
func guestMemory(pid int) *os.File {
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if to, err := os.Readlink(dir + e.Name()); err == nil && strings.HasPrefix(to, "/memfd:runsc-memory") {
			if f, err := os.Open(dir + e.Name()); err == nil {
				return f
			}
		}
	}
	return nil
}

// processorTime returns the time that every process of the sandbox but this one has used, and those that they
// have waited for.
func processorTime() (total time.Duration) {
	for _, pid := range procstat.Children(os.Getpid()) {
		total += procstat.Tree(pid).CPU
	}
	return total
}
