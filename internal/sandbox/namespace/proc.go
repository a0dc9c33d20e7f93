//go:build linux && (amd64 || arm64)

package namespace

import (
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
)

// Programs of a session read /proc/cpuinfo, meminfo and stat. A /proc of processes alone (subset=pid) has no such names
// to mount over. So a session has a whole /proc, and each name in it that is not of processes is covered: by a file of
// waldo's with the sandbox's limits, or by an empty file or folder. All lie on one read-only tmpfs. A start takes 1 to 2 ms
// longer. Where the kernel refuses a whole /proc (a container masks its own), a session has processes alone.

// ofProcesses are the names in /proc that lead to the process that asks.
var ofProcesses = map[string]bool{"self": true, "thread-self": true, "mounts": true, "net": true}

// told returns the files of /proc that a session has, by their names below it.
func told(l sandbox.Limits) map[string]string {
	cpus, kb := runtime.NumCPU(), l.Memory>>10
	var info, times strings.Builder
	for i := range cpus {
		fmt.Fprintf(&info, "processor\t: %d\nmodel name\t: processor\ncpu MHz\t\t: 0.000\nsiblings\t: %d\n"+
			"cpu cores\t: %d\n\n", i, cpus, cpus)
		fmt.Fprintf(&times, "cpu%d 0 0 0 0 0 0 0 0 0 0\n", i)
	}
	var since unix.Sysinfo_t
	_ = unix.Sysinfo(&since) // a failure shows a machine that has just begun
	var name unix.Utsname
	_ = unix.Uname(&name)
	begun := time.Now().Unix() - int64(since.Uptime)
	return map[string]string{
		"cpuinfo": info.String(),
		"meminfo": fmt.Sprintf("MemTotal: %14d kB\nMemFree: %15d kB\nMemAvailable: %10d kB\n"+
			"Buffers: %15d kB\nCached: %16d kB\nSwapCached: %12d kB\nShmem: %17d kB\nSReclaimable: %10d kB\n"+
			"SwapTotal: %13d kB\nSwapFree: %14d kB\n",
			kb, kb, kb, 0, 0, 0, 0, 0, 0, 0),
		"stat": fmt.Sprintf("cpu  0 0 0 0 0 0 0 0 0 0\n%sintr 0\nctxt 0\nbtime %d\nprocesses 1\n"+
			"procs_running 1\nprocs_blocked 0\n",
			times.String(), begun),
		"uptime":                   fmt.Sprintf("%d.00 0.00\n", since.Uptime),
		"loadavg":                  "0.00 0.00 0.00 1/1 1\n",
		"sys/kernel/ostype":        "Linux\n",
		"sys/kernel/osrelease":     unix.ByteSliceToString(name.Release[:]) + "\n",
		"sys/kernel/pid_max":       "4194304\n",
		"sys/kernel/overflowuid":   "65534\n",
		"sys/kernel/overflowgid":   "65534\n",
		"sys/vm/overcommit_memory": "0\n",
	}
}

// wholeProc appends the mounting of a /proc with all its names covered but those of processes. It returns the step that
// goes to what follows the other way, where this one fails; -1: there is no such way here.
func (s *setup) wholeProc() (mount, done int) {
	all, err := os.ReadDir("/proc")
	names := map[string]bool{} // to whether it is a folder
	for _, e := range all {
		if n := e.Name(); (n[0] < '0' || n[0] > '9') && !ofProcesses[n] {
			names[n] = e.IsDir()
		}
	}
	if _, whole := names["sys"]; err != nil || !whole {
		return -1, -1
	}
	mount = s.Call("mount a whole /proc", unix.SYS_MOUNT, "proc", "/proc", "proc", quiet|unix.MS_NOEXEC, "hidepid=invisible")
	const at = annex
	const size = "size=256k,nr_inodes=64,mode=755"
	s.Call("covers of /proc", unix.SYS_MOUNT, "waldo", at, "tmpfs", quiet|unix.MS_NOEXEC, size)
	made := map[string]bool{at: true}
	s.mkdir(made, at+"/folder")
	s.write(at+"/file", "", unix.O_CREAT)
	own := told(s.profile.Limits)
	for name, text := range own {
		s.mkdir(made, path.Dir(at+"/"+name))
		s.write(at+"/"+name, text, unix.O_CREAT)
	}
	s.Call("seal the covers of /proc", unix.SYS_MOUNT, 0, at, 0, unix.MS_REMOUNT|unix.MS_RDONLY|quiet|unix.MS_NOEXEC,
		size)
	for name, folder := range names {
		from := at + "/file"
		if _, ours := own[name]; ours || name == "sys" {
			from = at + "/" + name
		} else if folder {
			from = at + "/folder"
		}
		s.Call("cover /proc/"+name, unix.SYS_MOUNT, from, "/proc/"+name, 0, unix.MS_BIND, 0)
	}
	return mount, s.Ignore("go on", unix.SYS_GETPID)
}
