//go:build linux && (amd64 || arm64)

package namespace

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// sample is what /proc tells of a process tree at one moment.
type sample struct {
	cpu    time.Duration
	memory int64 // resident and not shared with files, in bytes
	pids   int64 // processes and threads, without the first
}

// clockTick is the unit of times in /proc/PID/stat: USER_HZ is 100 on both architectures.
const clockTick = 10 * time.Millisecond

// treeOf adds up the process and all below it. In a box every orphan becomes a child of PID 1,
// so nothing in the box is missed but what came and went unseen, whose parents count its time.
func treeOf(pid int) sample {
	var s sample
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
		s.cpu += one.cpu
		s.memory += one.memory
		if p != pid {
			s.pids += one.pids
		}
		todo = append(todo, children(dir)...)
	}
	return s
}

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

func readStat(dir string) (sample, error) {
	b, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return sample{}, err
	}
	s, err := parseStat(string(b))
	if err != nil {
		return s, err
	}
	statm, _ := os.ReadFile(dir + "/statm")
	if f := strings.Fields(string(statm)); len(f) > 2 { // size resident shared …
		resident, _ := strconv.ParseInt(f[1], 10, 64)
		shared, _ := strconv.ParseInt(f[2], 10, 64)
		s.memory = (resident - shared) * int64(os.Getpagesize())
	}
	return s, nil
}

// parseStat reads the times and the number of threads from /proc/PID/stat (proc(5)). The name
// of the program, which the program chooses, ends at the last ')'.
func parseStat(b string) (sample, error) {
	f := strings.Fields(b[strings.LastIndexByte(b, ')')+1:])
	if len(f) < 18 {
		return sample{}, fmt.Errorf("not in the form of proc(5): %q", b)
	}
	var s sample
	for _, i := range []int{11, 12, 13, 14} { // utime stime cutime cstime: fields 14 to 17
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil || n < 0 {
			return sample{}, fmt.Errorf("field %d of %q is no time", i+3, b)
		}
		s.cpu += time.Duration(n) * clockTick
	}
	n, err := strconv.ParseInt(f[17], 10, 64)
	if err != nil || n < 0 {
		return sample{}, fmt.Errorf("field 20 of %q is no number of threads", b)
	}
	s.pids = n
	return s, nil
}
