package seccomp

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// everything is the widest filter that any sandbox gets.
var everything = Profile{Inet: true, Shared: true, Affinity: true, Watch: true, Own: true}

func compile(t testing.TB, a Arch, p Profile) Program {
	t.Helper()
	prog, err := Compile(a, p)
	if err != nil {
		t.Fatal(err)
	}
	return prog
}

func TestNumbers(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Fatalf("finding golang.org/x/sys: %v", err)
	}
	line := regexp.MustCompile(`(?m)^\s+SYS_(\w+)\s+= (\d+)$`)
	for i, arch := range []string{"amd64", "arm64"} {
		src, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "unix", "zsysnum_linux_"+arch+".go"))
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, m := range line.FindAllStringSubmatch(string(src), -1) {
			name := strings.ToLower(m[1])
			if name == "arch_specific_syscall" {
				continue
			}
			seen++
			if want, _ := strconv.Atoi(m[2]); numbers[name][i] != int32(want) {
				t.Errorf("%s on %s is %d, x/sys says %d", name, arch, numbers[name][i], want)
			}
		}
		have := 0
		for _, n := range numbers {
			if n[i] >= 0 {
				have++
			}
		}
		if seen != have || seen < 300 {
			t.Errorf("%s: %d numbers, x/sys has %d", arch, have, seen)
		}
	}
}

func TestTableNamesEachCallOnce(t *testing.T) {
	seen := map[string]string{}
	for name := range filtered(everything) {
		seen[name] = "filtered by argument"
	}
	groups := append(append([]group{counted, pretended}, allowed...), refused...)
	for _, g := range groups {
		if g.why == "" {
			t.Errorf("a group without a reason: %s", g.calls)
		}
		for _, name := range strings.Fields(g.calls) {
			if _, ok := numbers[name]; !ok {
				t.Errorf("%q in %q is no system call", name, g.why)
			}
			if other, ok := seen[name]; ok {
				t.Errorf("%q is in %q and in %q", name, g.why, other)
			}
			seen[name] = g.why
		}
	}
}

func TestVerdicts(t *testing.T) {
	const dirty = 0xdeadbeef << 32
	rows := []struct {
		why    string
		call   string
		args   [6]uint64
		p      Profile
		answer uint32
	}{
		{"reading is what programs do", "read", [6]uint64{0}, Profile{}, Allow},
		{"tracing looks into other processes", "ptrace", [6]uint64{}, everything, eperm},
		{"a debugger, in a session of a person", "ptrace", [6]uint64{}, Profile{Terminals: true}, Allow},
		{"a debugger, where others are told of refusals", "ptrace", [6]uint64{},
			Profile{Terminals: true, Notify: []string{"ptrace"}}, Allow},
		{"a terminal of one's own", "ioctl", [6]uint64{3, 0x80045430}, Profile{Terminals: true}, Allow},
		{"control: without the word", "ioctl", [6]uint64{3, 0x80045430}, everything, enotty},
		{"input is pushed into no terminal", "ioctl", [6]uint64{3, 0x5412}, Profile{Terminals: true}, eperm},
		{"a ring makes calls that no filter sees", "io_uring_setup", [6]uint64{}, everything, eperm},
		{"keyrings are in no namespace", "keyctl", [6]uint64{}, everything, eperm},
		{"a user namespace brings capabilities", "unshare", [6]uint64{0x10000000}, everything, eperm},
		{"clone3 hides its flags behind a pointer", "clone3", [6]uint64{}, everything, enosys},
		{"a thread", "clone", [6]uint64{0x3d0f00}, Profile{}, Allow},
		{"a process", "clone", [6]uint64{17}, Profile{}, Allow},
		{"clone into a user namespace", "clone", [6]uint64{0x10000011}, everything, eperm},
		{"clone into a mount namespace", "clone", [6]uint64{0x20011}, everything, eperm},
		{"clone into a cgroup namespace", "clone", [6]uint64{0x2000011}, everything, eperm},
		{"clone into a network namespace, dirty upper half", "clone", [6]uint64{dirty | 0x40000011}, everything, eperm},
		{"a Unix socket", "socket", [6]uint64{1, 1, 0}, Profile{}, Allow},
		{"a Unix socket that does not block", "socket", [6]uint64{1, 0x80801, 0}, Profile{}, Allow},
		{"the zero profile has no TCP", "socket", [6]uint64{2, 1, 0}, Profile{}, eafnosupport},
		{"TCP behind a network namespace", "socket", [6]uint64{2, 0x80801, 6}, everything, Allow},
		{"UDP over IPv6", "socket", [6]uint64{10, 2, 17}, everything, Allow},
		{"MPTCP slips past rules for TCP", "socket", [6]uint64{2, 1, 262}, everything, eprotonosupport},
		{"ping sockets", "socket", [6]uint64{2, 2, 1}, everything, eprotonosupport},
		{"raw sockets", "socket", [6]uint64{2, 3, 1}, everything, eprotonosupport},
		{"SCTP", "socket", [6]uint64{2, 5, 132}, everything, eprotonosupport},
		{"the question for addresses", "socket", [6]uint64{16, 3, 0}, everything, Allow},
		{"netlink of netfilter", "socket", [6]uint64{16, 3, 12}, everything, eafnosupport},
		{"netlink of netfilter, dirty upper halves", "socket", [6]uint64{dirty | 16, dirty | 3, dirty | 12}, everything,
			eafnosupport},
		{"packet sockets", "socket", [6]uint64{17, 3, 0}, everything, eafnosupport},
		{"vsock reaches the hypervisor, dirty upper half", "socket", [6]uint64{dirty | 40, 1, 0}, everything, eafnosupport},
		{"kernel crypto sockets", "socket", [6]uint64{38, 5, 0}, everything, eafnosupport},
		{"a pair of Unix sockets", "socketpair", [6]uint64{1, 2, 0}, Profile{}, Allow},
		{"a pair of TIPC sockets", "socketpair", [6]uint64{30, 1, 0}, everything, eafnosupport},
		{"typing into the terminal", "ioctl", [6]uint64{0, 0x5412}, everything, eperm},
		{"typing into the terminal, dirty upper half (CVE-2019-10063)", "ioctl", [6]uint64{0, dirty | 0x5412}, everything,
			eperm},
		{"console games", "ioctl", [6]uint64{0, 0x541c}, everything, eperm},
		{"the immutable flag stops cleaning up", "ioctl", [6]uint64{3, 0x40086602}, everything, eperm},
		{"is it a terminal?", "ioctl", [6]uint64{1, 0x5401}, Profile{}, Allow},
		{"an ioctl nobody named", "ioctl", [6]uint64{1, 0xc0de}, everything, enotty},
		{"a thread's name", "prctl", [6]uint64{15}, Profile{}, Allow},
		{"PR_SET_MM rewrites what /proc shows", "prctl", [6]uint64{35}, everything, eperm},
		{"which personality?", "personality", [6]uint64{0xffffffff}, Profile{}, Allow},
		{"addresses without randomness", "personality", [6]uint64{0x40000}, everything, eperm},
		{"memory that no one counts", "memfd_create", [6]uint64{0, 1}, Profile{}, eperm},
		{"a memfd where a cgroup counts", "memfd_create", [6]uint64{0, 1}, everything, Allow},
		{"a memfd of huge pages", "memfd_create", [6]uint64{0, 5}, everything, eperm},
		{"shared memory of huge pages", "shmget", [6]uint64{0, 4096, 0x800}, everything, eperm},
		{"shared memory uncounted", "shmget", [6]uint64{0, 4096, 0x200}, Profile{}, eperm},
		{"anonymous memory", "mmap", [6]uint64{0, 4096, 3, 0x22}, Profile{}, Allow},
		{"anonymous huge pages", "mmap", [6]uint64{0, 4096, 3, 0x40022}, everything, enomem},
		{"anonymous huge pages, narrow", "mmap", [6]uint64{0, 4096, 3, 0x40022}, Profile{}, enomem},
		{"shared anonymous memory where a cgroup counts", "mmap", [6]uint64{0, 4096, 3, 0x21}, everything, Allow},
		{"shared anonymous memory, which no rlimit bounds", "mmap", [6]uint64{0, 4096, 3, 0x21}, Profile{}, eperm},
		{"the same with MAP_SHARED_VALIDATE", "mmap", [6]uint64{0, 4096, 3, 0x23}, Profile{}, eperm},
		{"a shared file: the mounts bound it", "mmap", [6]uint64{0, 4096, 3, 1, 5}, Profile{}, Allow},
		{"a fifo", "mknodat", [6]uint64{0, 0, 0x11a4}, Profile{}, Allow},
		{"a character device", "mknodat", [6]uint64{0, 0, 0x21a4}, everything, eperm},
		{"a block device, dirty upper half", "mknodat", [6]uint64{0, 0, dirty | 0x61a4}, everything, eperm},
		{"a character device by the old call, which arm64 never had", "mknod", [6]uint64{0, 0x21a4}, everything, eperm},
		{"a filter of one's own", "seccomp", [6]uint64{1, 0}, Profile{}, Allow},
		{"a listener of one's own", "seccomp", [6]uint64{1, 8}, everything, eperm},
		{"kernel TLS", "setsockopt", [6]uint64{3, 6, 31}, everything, enoprotoopt},
		{"a BPF filter on a socket", "setsockopt", [6]uint64{3, 1, 26}, everything, enoprotoopt},
		{"an eBPF program on a socket", "setsockopt", [6]uint64{3, 1, 50}, everything, enoprotoopt},
		{"a BPF program of SO_REUSEPORT", "setsockopt", [6]uint64{3, 1, 51}, everything, enoprotoopt},
		{"an eBPF program of SO_REUSEPORT, dirty upper half", "setsockopt", [6]uint64{3, dirty | 1, dirty | 52}, everything,
			enoprotoopt},
		{"reuse of an address", "setsockopt", [6]uint64{3, 1, 2}, Profile{}, Allow},
		{"sync succeeds and does nothing", "sync", [6]uint64{}, Profile{}, Errno},
		{"affinity is the bound on processors", "sched_setaffinity", [6]uint64{}, Profile{}, eperm},
		{"affinity where a cgroup bounds processors", "sched_setaffinity", [6]uint64{}, everything, Allow},
		{"own limits", "prlimit64", [6]uint64{0, 0}, Profile{}, Allow},
		{"limits of a child", "prlimit64", [6]uint64{7, 0}, everything, Allow},
		{"limits of another command, dirty upper half", "prlimit64", [6]uint64{dirty | 7, 0}, Profile{}, eperm},
		{"own priority", "setpriority", [6]uint64{0, 0, 5}, Profile{}, Allow},
		{"priority of the own group", "setpriority", [6]uint64{1, 0, 5}, Profile{}, Allow},
		{"priority of a child", "setpriority", [6]uint64{0, 7, 5}, everything, Allow},
		{"priority of another command", "setpriority", [6]uint64{0, 7, 5}, Profile{}, eperm},
		{"priority of a group of another command", "setpriority", [6]uint64{1, 7, 5}, Profile{}, eperm},
		{"priority of the user, which is that of all commands", "setpriority", [6]uint64{2, 0, 5}, Profile{}, eperm},
		{"own scheduling", "sched_setscheduler", [6]uint64{0, 5}, Profile{}, Allow},
		{"scheduling of another command", "sched_setscheduler", [6]uint64{7, 5}, Profile{}, eperm},
		{"its parameters", "sched_setparam", [6]uint64{7}, Profile{}, eperm},
		{"its attributes", "sched_setattr", [6]uint64{7}, Profile{}, eperm},
		{"own processors, other processes in sight", "sched_setaffinity", [6]uint64{0}, Profile{Affinity: true}, Allow},
		{"processors of another command", "sched_setaffinity", [6]uint64{7}, Profile{Affinity: true}, eperm},
		{"what Own allows, a sandbox without namespaces may not", "prlimit64", [6]uint64{7},
			Profile{Own: true, Bare: true}, eperm},
		{"a read at an offset", "preadv2", [6]uint64{3, 0, 1, 0, 0, 0}, Profile{}, Allow},
		{"a read of high priority", "preadv2", [6]uint64{3, 0, 1, 0, 0, dirty | 1}, Profile{}, Allow},
		{"a read that reports what is cached", "preadv2", [6]uint64{3, 0, 1, 0, 0, 8}, everything, eopnotsupp},
		{"the same among other flags, dirty upper half", "preadv2", [6]uint64{3, 0, 1, 0, 0, dirty | 0xb}, everything,
			eopnotsupp},
		{"a read that leaves nothing cached", "preadv2", [6]uint64{3, 0, 1, 0, 0, 0x80}, everything, eopnotsupp},
		{"a write that does not wait", "pwritev2", [6]uint64{3, 0, 1, 0, 0, 8}, everything, eopnotsupp},
		{"a flag that no kernel has yet", "pwritev2", [6]uint64{3, 0, 1, 0, 0, 1 << 31}, everything, eopnotsupp},
		{"advice to read ahead", "fadvise64", [6]uint64{3, 0, 0, 3}, Profile{}, Allow},
		{"advice to empty the page cache", "fadvise64", [6]uint64{3, 0, 0, dirty | 4}, everything, eperm},
		{"advice that pages are read once", "fadvise64", [6]uint64{3, 0, 0, dirty | 5}, everything, eperm},
		{"advice on own memory", "madvise", [6]uint64{0, 4096, 4}, Profile{}, Allow},
		{"advice to reclaim pages", "madvise", [6]uint64{0, 4096, 21}, everything, einval},
		{"advice to reclaim pages first", "madvise", [6]uint64{0, 4096, dirty | 20}, everything, einval},
		{"what is cached of a file", "mincore", [6]uint64{0, 4096}, everything, enosys},
		{"how much of a file is cached", "cachestat", [6]uint64{3}, everything, eperm},
		{"watching files that are the sandbox's own", "inotify_add_watch", [6]uint64{}, everything, Allow},
		{"watching files of the host", "inotify_add_watch", [6]uint64{}, Profile{}, eperm},
		{"watching a folder by fcntl", "fcntl", [6]uint64{3, 1026}, Profile{}, einval},
		{"a lease, which other processes break", "fcntl", [6]uint64{3, 1024}, Profile{}, einval},
		{"watching a folder of the sandbox's own", "fcntl", [6]uint64{3, 1026}, everything, Allow},
		{"hidden memory", "memfd_secret", [6]uint64{}, everything, eperm},
		{"the mounts of the host", "statmount", [6]uint64{}, everything, eperm},
		{"taking another's descriptor", "pidfd_getfd", [6]uint64{}, everything, eperm},
		{"setting the clock", "clock_settime", [6]uint64{}, everything, eperm},
		{"memory hidden in the policy of another process", "move_pages", [6]uint64{}, everything, eperm},
		{"an end the listener answers", "exit_group", [6]uint64{3}, Profile{Ends: true}, Notify},
		{"an end that is asked for", "kill", [6]uint64{7, EndSignal | 3}, Profile{Ends: true}, Notify},
		{"the same with the upper half set", "kill", [6]uint64{7, 1<<32 | EndSignal | 3}, Profile{Ends: true}, Notify},
		{"a signal", "kill", [6]uint64{7, 9}, Profile{Ends: true}, Allow},
		{"a number beside it", "kill", [6]uint64{7, EndSignal + 256}, Profile{Ends: true}, Allow},
		{"an end that nobody answers", "kill", [6]uint64{7, EndSignal}, Profile{}, Allow},
		{"a call the listener answers", "connect", [6]uint64{}, Profile{Notify: []string{"connect"}}, Notify},
	}
	for _, a := range []Arch{AMD64, ARM64} {
		for _, r := range rows {
			nr, ok := a.Number(r.call)
			if !ok {
				if a == AMD64 || r.call != "mknod" {
					t.Errorf("%s: no number on arch %d", r.call, a)
				}
				continue
			}
			if got := compile(t, a, r.p).Run(a.audit(), nr, r.args); got != r.answer {
				t.Errorf("%s: %s%x on arch %d answers %#x, want %#x", r.why, r.call, r.args, a, got, r.answer)
			}
		}
	}
}

func TestEveryListedCallGetsItsAnswer(t *testing.T) {
	for _, a := range []Arch{AMD64, ARM64} {
		prog := compile(t, a, everything)
		check := func(groups []group, want uint32) {
			for _, g := range groups {
				for _, name := range strings.Fields(g.calls) {
					if nr, ok := a.Number(name); ok {
						if got := prog.Run(a.audit(), nr, [6]uint64{}); got != want {
							t.Errorf("%s (%s) answers %#x, want %#x", name, g.why, got, want)
						}
					}
				}
			}
		}
		check(allowed, Allow)
		check([]group{counted}, Allow)
		check(refused, eperm)
		prog = compile(t, a, Profile{})
		check([]group{counted}, eperm)
	}
}

func TestOtherTables(t *testing.T) {
	prog := compile(t, AMD64, everything)
	rows := []struct {
		why      string
		arch, nr uint32
		want     uint32
	}{
		{"int 0x80 reaches unshare as 310", 0x40000003, 310, Kill},
		{"int 0x80, a number that reads in the 64-bit table", 0x40000003, 0, Kill},
		{"arm in a filter for amd64", 0xc00000b7, 0, Kill},
		{"x32 read", 0xc000003e, 0x40000000, enosys},
		{"x32 ptrace", 0xc000003e, 0x40000000 | 521, enosys},
		{"number -1", 0xc000003e, 0xffffffff, enosys},
		{"a call of a kernel to come", 0xc000003e, 600, enosys},
		{"a hole in the table", 0xc000003e, 400, enosys},
	}
	for _, r := range rows {
		if got := prog.Run(r.arch, r.nr, [6]uint64{}); got != r.want {
			t.Errorf("%s: %#x, want %#x", r.why, got, r.want)
		}
	}
	if got := compile(t, ARM64, everything).Run(0x40000028, 0, [6]uint64{}); got != Kill {
		t.Errorf("32-bit arm: %#x, want a kill", got)
	}
}

func TestProgramIsWellFormed(t *testing.T) {
	for _, a := range []Arch{AMD64, ARM64} {
		prog := compile(t, a, everything)
		t.Logf("arch %d: %d instructions", a, prog.Len())
		if prog.Len() > 1500 || len(prog)%8 != 0 {
			t.Errorf("%d instructions", prog.Len())
		}
		// Every jump lands inside, so no call runs off the end.
		for nr := uint32(0); nr < 700; nr++ {
			if got := prog.Run(a.audit(), nr, [6]uint64{}); got == Kill {
				t.Errorf("call %d kills", nr)
			}
		}
	}
	if _, err := Compile(0, Profile{}); err == nil {
		t.Error("an unknown architecture has a filter")
	}
	if _, err := Compile(AMD64, Profile{Notify: []string{"nonesuch"}}); err == nil {
		t.Error("an unknown name is notified of")
	}
}

// FuzzNoCallOpens states: the upper halves of arguments never change an answer. The widest profile allows all
// calls that the zero profile allows. Calls refused by name are never allowed.
func FuzzNoCallOpens(f *testing.F) {
	f.Add(uint32(41), uint64(1<<40|40), uint64(1<<36|1), uint64(0), uint64(0))
	f.Add(uint32(16), uint64(0), uint64(0xffffffff00005412), uint64(0), uint64(0))
	f.Add(uint32(56), uint64(0x7e020000), uint64(0), uint64(0), uint64(0))
	bad := map[Arch]map[uint32]bool{AMD64: {}, ARM64: {}}
	progs := map[Arch][2]Program{}
	for a, m := range bad {
		for _, g := range refused {
			for _, name := range strings.Fields(g.calls) {
				if nr, ok := a.Number(name); ok {
					m[nr] = true
				}
			}
		}
		nr, _ := a.Number("clone3")
		m[nr] = true
		progs[a] = [2]Program{compile(f, a, Profile{}), compile(f, a, everything)}
	}
	f.Fuzz(func(t *testing.T, nr uint32, a0, a1, a2, a3 uint64) {
		args := [6]uint64{a0, a1, a2, a3, a0, a1}
		low := args
		for i := range low {
			low[i] &= 0xffffffff
		}
		for a, p := range progs {
			narrow, wide := p[0].Run(a.audit(), nr, args), p[1].Run(a.audit(), nr, args)
			if wide != p[1].Run(a.audit(), nr, low) || narrow != p[0].Run(a.audit(), nr, low) {
				t.Errorf("call %d: upper halves of %x change the answer", nr, args)
			}
			if narrow == Allow && wide != Allow {
				t.Errorf("call %d %x: allowed by the zero profile, refused by the widest", nr, args)
			}
			if bad[a][nr] && wide == Allow {
				t.Errorf("call %d %x is refused by name and allowed", nr, args)
			}
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := Compile(AMD64, everything); err != nil {
			b.Fatal(err)
		}
	}
}
