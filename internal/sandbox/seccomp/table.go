package seccomp

// group is some system calls that get one answer, and why.
type group struct {
	why   string
	calls string // names, with spaces between
}

// allowed may be made with any arguments.
var allowed = []group{
	{"read and write what is open", `read write readv writev pread64 pwrite64 preadv pwritev lseek sendfile
		splice tee copy_file_range close close_range dup dup2 dup3 flock fsync fdatasync sync_file_range
		readahead ftruncate truncate fallocate pipe pipe2`},
	{"find and open files: the mounts say which there are",
		`open openat openat2 creat access faccessat faccessat2 stat fstat lstat
		newfstatat statx statfs fstatfs readlink readlinkat getdents getdents64 getcwd chdir fchdir umask file_getattr`},
	{"change files: the mounts say where",
		`rename renameat renameat2 mkdir mkdirat rmdir link linkat unlink unlinkat symlink symlinkat
		chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat
		setxattr lsetxattr fsetxattr setxattrat getxattr lgetxattr fgetxattr getxattrat listxattr llistxattr flistxattr
		listxattrat removexattr lremovexattr fremovexattr removexattrat`},
	{"wait for things",
		`poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
		eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime`},
	{"own memory", `mprotect munmap mremap msync brk mlock mlock2 munlock mlockall munlockall
		mseal pkey_mprotect pkey_alloc pkey_free membarrier map_shadow_stack`},
	{"processes and threads: counted by the pids limit", `fork vfork execve execveat exit exit_group wait4 waitid
		getpid getppid gettid getpgid getpgrp setpgid getsid setsid set_tid_address set_robust_list get_robust_list
		rseq futex futex_waitv futex_wake futex_wait futex_requeue pidfd_open pidfd_send_signal
		set_thread_area get_thread_area restart_syscall`},
	{"signals: only processes of the sandbox are in sight",
		`kill tkill tgkill rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending
		rt_sigtimedwait rt_sigqueueinfo rt_tgsigqueueinfo rt_sigsuspend sigaltstack pause alarm getitimer setitimer
		timer_create timer_settime timer_gettime timer_getoverrun timer_delete`},
	{"read clocks, sleep", `clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times`},
	{"own identity: one id is mapped and the capability sets are empty, so no other identity is possible",
		`getuid geteuid getgid getegid
		getresuid getresgid getgroups setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid capget capset`},
	{"own limits and priority: only downwards", `getrlimit setrlimit prlimit64 getrusage getpriority setpriority ioprio_get
		sched_yield sched_getaffinity sched_getparam sched_setparam sched_getscheduler sched_setscheduler sched_getattr
		sched_setattr sched_get_priority_max sched_get_priority_min sched_rr_get_interval getcpu`},
	{"properties of the machine", `uname sysinfo getrandom`},
	{"sockets that socket() let through",
		`connect accept accept4 bind listen shutdown getsockname getpeername sendto recvfrom
		sendmsg recvmsg sendmmsg recvmmsg getsockopt`},
	{"message queues: of the sandbox's own namespace, bounded by RLIMIT_MSGQUEUE",
		`mq_open mq_unlink mq_timedsend mq_timedreceive
		mq_notify mq_getsetattr`},
	{"restrict oneself further", `landlock_create_ruleset landlock_add_rule landlock_restrict_self`},
}

// counted may be made where a cgroup counts the memory behind them (Profile.Shared), because no
// rlimit does.
var counted = group{"shared memory", `shmat shmctl shmdt semget semop semctl semtimedop msgget msgsnd msgrcv msgctl`}

// watching is allowed if the visible files are objects of the sandbox's own (Profile.Watch), because the kernel
// reports every process's access to an object.
var watching = group{"watching files", `inotify_init inotify_init1 inotify_add_watch inotify_rm_watch`}

// tracing is what debuggers need. The kernel holds it to processes of the sandbox: no other is in its namespaces.
var tracing = group{"debuggers", `ptrace process_vm_readv process_vm_writev`}

// refused fail with EPERM, so that a program sees a refusal and not an old kernel.
var refused = []group{
	{"looking into other processes",
		`ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise process_mrelease`},
	{"system calls by another way, past this filter", `io_uring_setup io_uring_enter io_uring_register`},
	{"kernel asynchronous I/O: its slots are shared by the whole machine",
		`io_setup io_destroy io_getevents io_submit io_cancel io_pgetevents`},
	{"programs in the kernel, tracing, page faults held open", `bpf perf_event_open userfaultfd lookup_dcookie`},
	{"keyrings are not in a namespace", `add_key request_key keyctl`},
	{"new namespaces bring capabilities, and with them most of the kernel", `unshare setns`},
	{
		"mounts", `mount umount2 pivot_root chroot move_mount open_tree open_tree_attr fsopen fsconfig fsmount fspick ` +
			`mount_setattr`,
	},
	{"mounts of the host", `statmount listmount listns sysfs ustat`},
	{"files by handle go past the mounts", `open_by_handle_at name_to_handle_at`},
	{"watching whole mounts", `fanotify_init fanotify_mark`},
	{"attributes that stand in the way of cleaning up", `file_setattr`},
	{"the page cache is shared with the host", `cachestat`},
	{"pages lent to pipes (CVE-2022-0847 and its kin)", `vmsplice`},
	{"memory hidden from the kernel itself", `memfd_secret`},
	{"placement of memory, also of other processes",
		`mbind set_mempolicy get_mempolicy migrate_pages move_pages set_mempolicy_home_node`},
	{"old ways to map memory", `remap_file_pages uselib`},
	{"segment descriptors and ports of the processor", `modify_ldt iopl ioperm`},
	{"the machine itself",
		`reboot kexec_load kexec_file_load init_module finit_module delete_module swapon swapoff acct quotactl
		quotactl_fd syslog vhangup sethostname setdomainname _sysctl`},
	{"setting the clock", `settimeofday clock_settime clock_adjtime adjtimex`},
	{"supplementary groups", `setgroups`},
	{"disk priority", `ioprio_set`},
	{"security modules", `lsm_get_self_attr lsm_set_self_attr lsm_list_modules`},
}

// pretended succeed and do nothing: every volume of a sandbox is in memory, and to flush the host's disks is a
// way to slow it.
var pretended = group{"flush all disks", `sync syncfs`}
