package seccomp

import "strings"

// bare are the calls that only namespaces make harmless: no Landlock rule reaches them.
var bare = []group{
	{"names of sockets are the host's, and Landlock does not hold them", `socket connect bind listen accept accept4`},
	{"metadata of files: Landlock holds contents, not these", `chmod fchmodat fchmodat2 chown lchown fchownat utime utimes
		futimesat utimensat setxattr lsetxattr setxattrat removexattr lremovexattr removexattrat`},
	{"message queues of the host", `mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr`},
}

// noSetID refuses commands the making of set-id files: in a folder of the host, other users would run them as
// the sandbox's user. A filter cannot see the arguments of openat2, and programs do without it.
func noSetID(byName map[string]rule) {
	for name, mode := range map[string]int{"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "open": 2,
		"openat": 3, "mknod": 1, "mknodat": 2} {
		allow := []test{bits(mode, setID, 0)}
		for _, c := range byName[name].clauses { // of mknod: no devices either
			allow = append(allow, c.tests...)
		}
		byName[name] = first(eperm, when(Allow, allow...))
	}
	byName["openat2"] = rule{other: enosys}
}

// ownOnly refuses to change limits, priority, scheduling and processors of other processes. Only a process that is
// named 0 is certainly the caller.
func ownOnly(byName map[string]rule) {
	own := first(eperm, when(Allow, is(0, 0)))
	for _, name := range []string{"prlimit64", "sched_setparam", "sched_setscheduler", "sched_setattr"} {
		byName[name] = own
	}
	if byName["sched_setaffinity"].other == Allow {
		byName["sched_setaffinity"] = own
	}
	byName["setpriority"] = first(eperm, when(Allow, is(0, 0, 1), is(1, 0))) // this process, or its group
}

// bareRules takes from the rules what a sandbox without namespaces must not have.
func bareRules(byName map[string]rule) {
	for _, g := range bare {
		for _, name := range strings.Fields(g.calls) {
			byName[name] = rule{other: eperm}
		}
	}
	// Connected pairs only: a datagram socket may send to any name.
	byName["socketpair"] = first(eafnosupport, when(Allow, is(0, 1), test{1, 0xf, []uint32{1, 5}}))
}
