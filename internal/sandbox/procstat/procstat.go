//go:build linux

package procstat

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Sample is the use of a process tree at one moment, read from /proc.
type Sample struct {
	CPU    time.Duration
	Memory int64 // resident and not shared with files, in bytes, without the first
	Pids   int64 // processes and threads, without the first
}

// clockTick is the unit of times in /proc/PID/stat: USER_HZ is 100 on both architectures.
const clockTick = 10 * time.Millisecond

// Tree adds up the process and all its descendants. In a sandbox every orphan becomes a child of PID 1. So
// Tree misses only processes that began and ended between two calls; their parents count their time.
// Memory that forked processes share counts for each of them: Memory is an upper bound.
func Tree(pid int) Sample { return tree(pid, ownMemory) }

// Within is Tree with shared memory counted once (Pss_Anon of smaps_rollup, proc(5)) if the upper bound exceeds
// limit, in bytes. Only then is the walk of every page table worth its time.
func Within(pid int, limit int64) Sample {
	s := Tree(pid)
	if s.Memory > limit {
		s.Memory = min(s.Memory, tree(pid, proportionalMemory).Memory)
	}
	return s
}

func tree(pid int, memory func(dir string) int64) Sample {
	var s Sample
	seen := map[int]bool{}
	todo := []int{pid}
	for len(todo) > 0 {
		p := todo[0]
		todo = todo[1:]
		if seen[p] {
			continue
		}
		seen[p] = true
		dir := "/proc/" + strconv.Itoa(p)
		one, err := readStat(dir)
		if err != nil {
			continue
		}
		s.CPU += one.CPU
		if p != pid { // which is waldo's own
			s.Memory += memory(dir)
			s.Pids += one.Pids
		}
		todo = append(todo, children(dir)...)
	}
	return s
}

// Children lists the processes that a process has made and that are not reaped.
func Children(pid int) []int { return children("/proc/" + strconv.Itoa(pid)) }

// children lists the processes that the threads of a process have made.
func children(dir string) []int {
	tasks, _ := os.ReadDir(dir + "/task")
	var out []int
	for _, t := range tasks {
		b, _ := os.ReadFile(dir + "/task/" + t.Name() + "/children")
		for _, f := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

// OwnMemory returns the bytes that a process alone has in memory: resident and not shared with files.
func OwnMemory(pid int) int64 { return ownMemory("/proc/" + strconv.Itoa(pid)) }

func ownMemory(dir string) int64 {
	statm, _ := os.ReadFile(dir + "/statm")
	f := strings.Fields(string(statm)) // size resident shared …
	if len(f) < 3 {
		return 0
	}
	resident, _ := strconv.ParseInt(f[1], 10, 64)
	shared, _ := strconv.ParseInt(f[2], 10, 64)
	return (resident - shared) * int64(os.Getpagesize())
}

// proportionalMemory is ownMemory with each page divided by the processes that have it. A process that is not dumpable
// hides this from an ordinary user: then it is ownMemory.
func proportionalMemory(dir string) int64 {
	rollup, _ := os.ReadFile(dir + "/smaps_rollup")
	_, rest, found := strings.Cut(string(rollup), "\nPss_Anon:")
	amount, _, _ := strings.Cut(rest, " kB")
	kib, err := strconv.ParseInt(strings.TrimSpace(amount), 10, 64)
	if !found || err != nil {
		return ownMemory(dir)
	}
	return kib << 10
}

func readStat(dir string) (Sample, error) {
	b, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return Sample{}, err
	}
	return parseStat(string(b))
}

// parseStat reads the times and the number of threads from /proc/PID/stat (proc(5)). The name
// of the program, which the program chooses, ends at the last ')'.
func parseStat(b string) (Sample, error) {
	f := strings.Fields(b[strings.LastIndexByte(b, ')')+1:])
	if len(f) < 18 {
		return Sample{}, fmt.Errorf("not in the form of proc(5): %q", b)
	}
	var s Sample
	for _, i := range []int{11, 12, 13, 14} { // utime stime cutime cstime: fields 14 to 17
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil || n < 0 {
			return Sample{}, fmt.Errorf("field %d of %q is not a time", i+3, b)
		}
		s.CPU += time.Duration(n) * clockTick
	}
	n, err := strconv.ParseInt(f[17], 10, 64)
	if err != nil || n < 0 {
		return Sample{}, fmt.Errorf("field 20 of %q is not a number of threads", b)
	}
	s.Pids = n
	return s, nil
}

// Threads opens what tells whether each thread of a process is still there (Gone). A number that is
// given anew is another thread.
func Threads(pid int) (out []*os.File) {
	dir := fmt.Sprintf("/proc/%d/task/", pid)
	tasks, _ := os.ReadDir(dir)
	for _, t := range tasks {
		if f, err := os.Open(dir + t.Name() + "/comm"); err == nil {
			out = append(out, f)
		}
	}
	return out
}

// Exited reports whether the thread that Threads opened has ended.
func Exited(thread *os.File) bool {
	_, err := thread.ReadAt(make([]byte, 1), 0)
	return err != nil
}

// OpenStat opens the state of a process's first thread (/proc/PID/stat). It returns nil if the process has ended.
func OpenStat(pid int) *os.File {
	f, _ := os.Open(fmt.Sprintf("/proc/%d/stat", pid))
	return f
}

// WaitBlocked waits, for a few milliseconds at most, until a thread that is about to block does so. The kernel counts
// the time since the thread was last scheduled only then. OpenStat has opened the thread.
func WaitBlocked(thread *os.File) {
	for end := time.Now().Add(5 * time.Millisecond); time.Now().Before(end); {
		var b [512]byte
		n, err := thread.ReadAt(b[:], 0)
		i := bytes.LastIndexByte(b[:max(n, 0)], ')') + 2
		if err != nil && err != io.EOF || i >= n || b[i] != 'R' {
			return
		}
	}
}

// NSPID returns the number that a process has in its own pid namespace; 0: it is not known.
func NSPID(pid int) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	f := strings.Fields(line)
	if len(f) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(f[len(f)-1])
	return n
}

// SignalName names a signal, a real-time one by its number.
func SignalName(s syscall.Signal) string {
	if n := unix.SignalName(s); n != "" {
		return n
	}
	return fmt.Sprintf("SIG%d", int(s))
}
