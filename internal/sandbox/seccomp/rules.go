package seccomp

import "slices"

// Answers of the filter (linux/seccomp.h); an errno is in the low 16 bits.
const (
	Allow  = 0x7fff0000
	Notify = 0x7fc00000
	Errno  = 0x00050000
	Kill   = 0x80000000 // the whole process
)

// The errors a refusal may show (the same numbers on AMD64 and ARM64).
const (
	eperm           = Errno | 1
	enomem          = Errno | 12
	einval          = Errno | 22
	enotty          = Errno | 25
	enosys          = Errno | 38
	enoprotoopt     = Errno | 92
	eprotonosupport = Errno | 93
	eopnotsupp      = Errno | 95
	eafnosupport    = Errno | 97
)

// test matches if the low half of an argument, under the mask, is one of the values. The upper half is ignored:
// the kernel reads these arguments as int (CVE-2019-10063).
type test struct {
	arg  int
	mask uint32
	in   []uint32
}

// clause is an answer for when all its tests hold.
type clause struct {
	tests  []test
	answer uint32
}

// rule is the answer for one system call: the first clause that matches, or else other.
type rule struct {
	clauses []clause
	other   uint32
}

func is(arg int, v ...uint32) test               { return test{arg, ^uint32(0), v} }
func bits(arg int, mask uint32, v uint32) test   { return test{arg, mask, []uint32{v}} }
func when(answer uint32, tests ...test) clause   { return clause{tests, answer} }
func first(other uint32, clauses ...clause) rule { return rule{clauses, other} }

const (
	newNamespaces = 0x7e020000 // CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}; NEWTIME is not clone's
	deviceBit     = 0x2000     // set in S_IFCHR and S_IFBLK, in no other type that mknod makes
	setID         = 0o6000     // S_ISUID, S_ISGID
	mapHuge       = 0x40000    // MAP_HUGETLB
	mapSharedAnon = 0x21       // MAP_ANONYMOUS with MAP_SHARED or MAP_SHARED_VALIDATE
	shmHuge       = 0x800      // SHM_HUGETLB
	mfdHuge       = 0x4        // MFD_HUGETLB
	newListener   = 0x8        // SECCOMP_FILTER_FLAG_NEW_LISTENER
	readFlags     = 0x77       // RWF_HIPRI, DSYNC, SYNC, APPEND, NOAPPEND, ATOMIC: without NOWAIT (8) and DONTCACHE (0x80)
	dontNeed      = 4          // POSIX_FADV_DONTNEED
	noReuse       = 5          // POSIX_FADV_NOREUSE
	pageCold      = 20         // MADV_COLD
	pageOut       = 21         // MADV_PAGEOUT
	setLease      = 1024       // F_SETLEASE
	notifyDir     = 1026       // F_NOTIFY
)

// filtered gives the rules for the calls whose arguments matter.
func filtered(p Profile) map[string]rule {
	devices := ioctls
	if p.Terminals {
		devices = slices.Concat(ioctls, ptyIoctls)
	}
	r := map[string]rule{
		// glibc falls back to clone, whose flags can be seen here.
		"clone3": first(enosys),
		"clone":  first(eperm, when(Allow, bits(0, newNamespaces, 0))),
		// Only the default personality, and the question which one it is: none that switches off address randomisation.
		"personality": first(eperm, when(Allow, is(0, 0, 0xffffffff))),
		"prctl":       first(eperm, when(Allow, is(0, prctls...))),
		"arch_prctl":  first(eperm, when(Allow, is(0, archPrctls...))),
		"ioctl":       first(enotty, when(Allow, is(1, devices...)), when(eperm, is(1, badIoctls...))),
		"mknod":       first(eperm, when(Allow, bits(1, deviceBit, 0))),
		"mknodat":     first(eperm, when(Allow, bits(2, deviceBit, 0))),
		// A filter of one's own only restricts further; a listener could answer for this one.
		"seccomp": first(eperm, when(Allow, is(0, 0, 2)), when(Allow, is(0, 1), bits(1, newListener, 0))),
		"socket":  socketRule(p),
		// AF_UNIX alone; other families answer socketpair too (TIPC).
		"socketpair": first(eafnosupport, when(Allow, is(0, 1), bits(1, 0xf, 1)),
			when(Allow, is(0, 1), test{1, 0xf, []uint32{2, 5}})),
		// No BPF on sockets, no kernel TLS.
		"setsockopt": first(Allow, when(enoprotoopt, is(1, 1), is(2, 26, 50, 51, 52)),
			when(enoprotoopt, is(1, 6), is(2, 31))),
		// The page cache belongs to the whole machine. RWF_NOWAIT and mincore report which pages are in it; DONTNEED
		// and PAGEOUT remove pages from it, and COLD and NOREUSE make them the next to go.
		// libunwind does without mincore where the kernel has none.
		"mincore":   first(enosys),
		"madvise":   first(Allow, when(einval, is(2, pageCold, pageOut))),
		"preadv2":   first(eopnotsupp, when(Allow, bits(5, ^uint32(readFlags), 0))),
		"pwritev2":  first(eopnotsupp, when(Allow, bits(5, ^uint32(readFlags), 0))),
		"fadvise64": first(Allow, when(eperm, is(3, dontNeed, noReuse))),
		"fcntl":     first(Allow),
		// Affinity stays as the driver set it where that is the bound on processors.
		"sched_setaffinity": first(eperm),
	}
	if !p.Watch {
		r["fcntl"] = first(Allow, when(einval, is(1, setLease, notifyDir)))
	}
	if p.Affinity {
		r["sched_setaffinity"] = first(Allow)
	}
	// Huge pages are in no memory cgroup; a runtime that asks for them does without.
	r["memfd_create"], r["shmget"] = first(eperm), first(eperm)
	r["mmap"] = first(enomem, when(eperm, bits(3, mapSharedAnon, mapSharedAnon)), when(Allow, bits(3, mapHuge, 0)))
	if p.Shared {
		r["mmap"] = first(enomem, when(Allow, bits(3, mapHuge, 0)))
		r["memfd_create"] = first(eperm, when(Allow, bits(1, mfdHuge, 0)))
		r["shmget"] = first(eperm, when(Allow, bits(2, shmHuge, 0)))
	}
	return r
}

// socketRule allows Unix sockets; with Inet also TCP and UDP by their own names, and the question
// which addresses there are (netlink, ROUTE), which getifaddrs and node's os.networkInterfaces ask.
func socketRule(p Profile) rule {
	c := []clause{when(Allow, is(0, 1), test{1, 0xf, []uint32{1, 2, 5}})}
	if p.Inet {
		c = append(c,
			when(Allow, is(0, 2, 10), bits(1, 0xf, 1), is(2, 0, 6)),
			when(Allow, is(0, 2, 10), bits(1, 0xf, 2), is(2, 0, 17)),
			when(eprotonosupport, is(0, 2, 10)), // MPTCP (262), SCTP, ICMP, raw
			when(Allow, is(0, 16), test{1, 0xf, []uint32{2, 3}}, is(2, 0)))
	}
	return rule{c, eafnosupport}
}

// ioctls that programs need: terminals as far as reading and sizing them, flags of descriptors,
// names of network interfaces, clones of file ranges.
var ioctls = []uint32{
	0x5401, 0x5402, 0x5403, 0x5404, 0x802c542a, 0x402c542b, 0x402c542c, 0x402c542d, // TCGETS, TCSETS*, and …2
	// TCSBRK TCXONC TCFLSH TIOC{G,S}PGRP OUTQ {G,S}WINSZ GSID
	0x5409, 0x540a, 0x540b, 0x540f, 0x5410, 0x5411, 0x5413, 0x5414, 0x5429,
	0x541b, 0x5421, 0x5450, 0x5451, 0x5452, 0x5460, // FIONREAD FIONBIO FIONCLEX FIOCLEX FIOASYNC FIOQSIZE
	0x80086601, 0x80046601, 0x40049409, 0x4020940d, // FS_IOC_GETFLAGS, FICLONE, FICLONERANGE
	0x8905, 0x8910, 0x8912, 0x8913, 0x8915, 0x8917, 0x8919, 0x891b, 0x8921, 0x8927, 0x8933, // SIOCATMARK, SIOCGIF*
}

// ptyIoctls make pseudo-terminals and take them: TIOCGPTN TIOCSPTLCK TIOCGPTPEER TIOCSCTTY TIOCNOTTY TIOCPKT.
// Input is never pushed into a terminal (TIOCSTI).
var ptyIoctls = []uint32{0x80045430, 0x40045431, 0x5441, 0x540e, 0x5422, 0x5420}

// badIoctls are refused as such rather than as unknown.
var badIoctls = []uint32{
	0x5412, 0x541c, 0x540e, 0x541d, 0x5423, // TIOCSTI TIOCLINUX TIOCSCTTY TIOCCONS TIOCSETD
	0x40086602, 0x40046602, 0x401c5820, // FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR
	0x40086604, 0xc0045877, 0xc0045878, // FS_IOC_SETVERSION, FIFREEZE, FITHAW
}

// prctls that touch only the caller: names, death signal, dumpable, no_new_privs, seccomp, timer
// slack, transparent huge pages, speculation, pointer authentication, vector lengths, memory names.
var prctls = []uint32{
	1, 2, 3, 4, 7, 15, 16, 21, 22, 23, 27, 29, 30, 36, 37, 38, 39, 40, 41, 42, 50, 51, 52, 53, 54, 55, 56, 60, 61,
	63, 64, 65, 66, 0x53564d41, 0x41555856,
}

// archPrctls: the FS and GS bases, CPUID state, extended processor state, shadow stacks.
var archPrctls = []uint32{
	0x1001, 0x1002, 0x1003, 0x1004, 0x1011, 0x1021, 0x1022, 0x1023, 0x1024, 0x1025, 0x3001, 0x5001, 0x5002, 0x5003,
	0x5004, 0x5005,
}
