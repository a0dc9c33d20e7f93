package seccomp

import "strings"

// bare are the calls that only namespaces make harmless: no Landlock rule reaches them.
var bare = []group{
	{"names of sockets are the host's, and Landlock does not hold them", `socket connect bind listen accept accept4`},
	{"metadata of files: Landlock holds contents, not these", `chmod fchmodat fchmodat2 chown lchown fchownat utime utimes
		futimesat utimensat setxattr lsetxattr setxattrat removexattr lremovexattr removexattrat`},
	{"watching folders of the host", `inotify_init inotify_init1 inotify_add_watch`},
	{"message queues of the host", `mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr`},
}

// bareRules takes from the rules what a box without namespaces must not have. Limits and priority
// are its own only: the host's processes of the same user are in sight.
func bareRules(byName map[string]rule) {
	for _, g := range bare {
		for _, name := range strings.Fields(g.calls) {
			byName[name] = rule{other: eperm}
		}
	}
	own := first(eperm, when(Allow, is(0, 0)))
	for _, name := range []string{"prlimit64", "sched_setparam", "sched_setscheduler", "sched_setattr"} {
		byName[name] = own
	}
	byName["setpriority"] = first(eperm, when(Allow, is(0, 0), is(1, 0)))
	// Connected pairs only: a datagram socket may send to any name.
	byName["socketpair"] = first(eafnosupport, when(Allow, is(0, 1), test{1, 0xf, []uint32{1, 5}}))
}
