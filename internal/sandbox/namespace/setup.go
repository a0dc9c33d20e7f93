//go:build linux && (amd64 || arm64)

package namespace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
	"waldo/internal/sandbox/initproc"
	"waldo/internal/sandbox/initvm"
	"waldo/internal/sandbox/mount"
	"waldo/internal/sandbox/seccompnotify"
)

// The one user that a sandbox has, where its template names none. Its id outside is another for each sandbox when
// waldo runs as root.
const insideUser = "agent"

// atCWD is the folder that relative paths of the *at calls start from.
const atCWD = uint64(unix.AT_FDCWD & 0xffffffffffffffff)

// setup holds the inputs of the program that prepares a sandbox.
type setup struct {
	initproc.List
	profile   sandbox.Profile
	uid, gid  int     // outside
	filters   filters // see Driver.filtersOf
	counted   bool    // a cgroup counts the sandbox's memory
	landlock  bool    // a ruleset is at landlockFD
	abi       int     // of the kernel's Landlock
	mounts    []shown
	links     []mount.Link          // at the top of another root
	firstTree int                   // the descriptor of the first of their copies; the others follow
	writable  []string              // the volumes, in the order in which they are made
	files     int                   // how many descriptors come with the program
	tasks     int                   // the last of them: of the version 1 cgroups
	late      int                   // the descriptor of the shared PID namespace; that of the keeper's mounts follows
	mountNS   int                   // that of its mounts, where processes are shared
	free      int                   // the lowest free descriptor while the sandbox is being prepared
	refused   map[string]unix.Errno // folders of which the kernel makes no overlay
	unwatched bool                  // something of the host is shown without an overlay
	overlays  int                   // of mounts: their descriptors are below free
	sealed    []string              // the volumes that commands cannot write to
	// credentials are the files and folders of the template that show as empty; see inroot.Root.Credentials.
	credentials []string
	forked      bool // a zygote walks it, not its own machine
	joined      bool // its user and network namespaces are shared with other commands
	tree        bool // so is the PID namespace of commands, in which it is not the first
	mapped      bool // waldo maps the user, who is another than the one that walks it
}

// The filters of a sandbox, by what it sees of the host's files.
const (
	asItIsThere = iota // some without an overlay: nothing can be watched
	overlaid           // all through overlays
	terminals          // a session of a person, with a live folder
	live               // the live folder of a person: watched, but no set-id file is made
	kinds
)

type filters [kinds]seccompnotify.Filters

// live reports whether the sandbox has a live folder.
func (s *setup) live() bool {
	return slices.ContainsFunc(s.mounts, func(m shown) bool { return m.live })
}

// build makes the program of PID 1, from its start in namespaces of its own until it waits for commands.
func (s *setup) build() {
	s.joinGroups()
	s.resetSignals()
	if s.mapped {
		s.becomeMapped()
	} else if !s.joined {
		s.mapIDs()
	}
	s.makeRoot()
	s.isolate()
	s.serve()
}

// joinGroups appends PID 1's going into its version 1 cgroups.
func (s *setup) joinGroups() {
	first := landlockFD + s.files
	for i := range s.tasks {
		s.Call("join a cgroup", unix.SYS_WRITE, first+i, []byte("0"), 1)
	}
	s.Call("close the cgroups", unix.SYS_CLOSE_RANGE, first, 0xffffffff, 0)
	s.free = first
}

// resetSignals gives every signal its default action and blocks none: ignored signals would be
// inherited by the agent's code.
func (s *setup) resetSignals() {
	zero := s.Bytes(make([]byte, 32))
	for sig := 1; sig <= 64; sig++ {
		s.Ignore("reset signals", unix.SYS_RT_SIGACTION, sig, zero, 0, 8)
	}
	s.Call("unblock signals", unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, zero, 0, 8)
}

// mapIDs maps the one user and group of the sandbox.
func (s *setup) mapIDs() {
	uid, gid := s.profile.Template.IDs()
	s.write("/proc/self/setgroups", "deny", 0)
	s.write("/proc/self/uid_map", fmt.Sprintf("%d %d 1", uid, s.uid), 0)
	s.Hint(initproc.UserNSHint)
	s.write("/proc/self/gid_map", fmt.Sprintf("%d %d 1", gid, s.gid), 0)
}

// write appends steps that write a file; with O_CREAT among the flags they make it, readable to
// all. The descriptor is the lowest free one, which is s.free: nothing else is ever left open.
func (s *setup) write(path, content string, flags int) {
	s.Call("open "+path, unix.SYS_OPENAT, atCWD, path, flags|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if content != "" {
		s.Call("write "+path, unix.SYS_WRITE, s.free, []byte(content), len(content))
	}
	s.Call("close "+path, unix.SYS_CLOSE, s.free)
}

// sendPlaces appends steps that send waldo the overlays and a descriptor of each volume. A sealed volume is covered
// by itself, read-only; waldo's descriptor is of the writable one below.
func (s *setup) sendPlaces() {
	for _, t := range s.writable {
		s.Call("open "+t, unix.SYS_OPENAT, atCWD, t, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)
	}
	for _, t := range s.sealed {
		s.Call("cover "+t, unix.SYS_MOUNT, t, t, 0, unix.MS_BIND|unix.MS_REC, 0)
		s.attributes(t, sealed, false)
	}
	s.free -= s.overlays
	s.SendFiles("the places", initproc.RecPlaces, s.free, s.overlays+len(s.writable))
	s.Call("close the places", unix.SYS_CLOSE_RANGE, s.free, 0xffffffff, 0)
}

// isolate appends what takes PID 1 from the powers it had over its namespaces to none.
func (s *setup) isolate() {
	s.Hear()
	// Only now, because waldo has meanwhile put the process into its cgroups: their paths must
	// not be seen from inside.
	s.Call("cgroup namespace", unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP)
	s.Optional()
	if s.tree { // its first process there is the one that HandOn makes
		s.Call("the shared PID namespace", unix.SYS_SETNS, s.late, unix.CLONE_NEWPID)
	}
	s.Call("securebits", unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, 0xef, 0, 0, 0) // all but KEEP_CAPS, all locked
	first := len(s.Steps)
	for c := range 64 {
		i := s.Call("drop from the bounding set", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		s.Steps[i].Fail = initvm.To(first + 64) // the kernel knows no more
	}
	header := binary.LittleEndian.AppendUint32(nil, unix.LINUX_CAPABILITY_VERSION_3)
	s.Call("drop capabilities", unix.SYS_CAPSET, append(header, 0, 0, 0, 0), make([]byte, 24))
	s.Call("no new privileges", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	s.Call("not dumpable", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	s.Call("umask", unix.SYS_UMASK, 0o022)
	s.narrow()
	if s.landlock {
		s.Call("landlock", unix.SYS_LANDLOCK_RESTRICT_SELF, landlockFD, 0)
	}
	s.Call("keep the tree", unix.SYS_DUP3, s.free, treeFD, 0) // it is gone with its last descriptor; commands close it
	if s.forked {
		s.keepMachine()
	}
	s.Call("close descriptors", unix.SYS_CLOSE_RANGE, treeFD+1, machineFD-1, 0)
	if s.tree { // others see it from now on; processes that outlive their parent stay in this tree
		s.HandOn()
		s.Call("reap", unix.SYS_PRCTL, unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	s.Call("die with waldo", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, int(unix.SIGKILL), 0, 0, 0)
	s.Call("new session", unix.SYS_SETSID)
	s.seccompSteps()
}

// Descriptors of PID 1: its end of the socket, the sandbox's root, and from jobFD on those that come with a command:
// its stdio and an optional bridge.
const (
	treeFD     = initproc.CtlFD + 1
	jobFD      = treeFD + 1
	landlockFD = initproc.CtlFD + 1 // until the root is there
)

// serve reports that the sandbox is ready and appends PID 1's loop.
func (s *setup) serve() {
	s.Call("report ready", unix.SYS_WRITE, initproc.CtlFD, s.Record(initproc.RecReady), initproc.RecordSize)
	if s.forked {
		s.leaveInterpreter()
		return
	}
	commands(&s.List, s.tree)
}

// commands appends PID 1's loop: take a command, start it, reap all children until it ends, kill the rest, report. The
// loop ends when waldo closes its end of the socket. It returns the step that waits for the first command.
func commands(l *initproc.List, tree bool) (wait int) {
	exit, child := l.Record(initproc.RecExit), l.Structure(initvm.Num(firstCommand))
	take := len(l.Steps)
	clone := takeCommand(l, int(unix.SIGCHLD))
	l.Steps[clone].Store, l.Steps[clone].Same = child, initvm.At(initproc.JobBase)
	l.Call("close its descriptors", unix.SYS_CLOSE_RANGE, jobFD, 0xffffffff, 0)
	wait = l.Call("wait", unix.SYS_WAIT4, ^uint64(0), exit.Plus(16), unix.WALL, 0, 0, 0)
	l.Steps[wait].Equal, l.Steps[wait].Next = child, initvm.To(wait)
	l.Steps[wait].Same = initvm.To(wait + 1)
	if !tree { // there it would kill the other commands: waldo ends this one's group
		l.Ignore("kill what is left", unix.SYS_KILL, ^uint64(0), int(unix.SIGKILL))
		reap := l.Call("reap what is left", unix.SYS_WAIT4, ^uint64(0), 0, unix.WALL, 0, 0, 0)
		l.Steps[reap].Next, l.Steps[reap].Fail = initvm.To(reap), initvm.To(reap+1)
	}
	l.Call("usage", unix.SYS_GETRUSAGE, ^uint64(0), exit.Plus(32)) // RUSAGE_CHILDREN
	last := l.Call("report the end", unix.SYS_WRITE, initproc.CtlFD, exit, initproc.RecordSize)
	l.Steps[last].Next = initvm.To(take)
	return wait
}

// takeCommand appends the taking of a command and the making of its process. It returns the step of the latter.
func takeCommand(l *initproc.List, flags int) (clone int) {
	gone := initvm.At(initproc.Gone)
	l.TakeDescriptors(4, gone)
	l.TakeProgram("take a command", initproc.JobBase, gone)
	clone = l.Call("start the command", unix.SYS_CLONE, flags, 0, 0, 0, 0)
	l.Steps[clone-1].Same = initvm.To(clone)
	l.Steps[clone].Equal = l.Structure(initvm.Num(0))
	return clone
}

// seccompSteps appends the filter: one with a listener, which goes to waldo, if the kernel supports it, and one that
// also reports exits if possible. Otherwise it appends the plain one.
func (s *setup) seccompSteps() {
	set := func(name string, flags, filter int) int {
		p := s.filters[overlaid][filter]
		if s.profile.Terminals {
			p = s.filters[terminals][filter]
		} else if s.live() {
			p = s.filters[live][filter]
		} else if s.unwatched {
			p = s.filters[asItIsThere][filter]
		}
		return s.Call(name, unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags,
			s.Structure(initvm.Num(p.Len()), s.Bytes(bytes.Clone(p))))
	}
	best := set("seccomp with notice of ends", unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|seccompnotify.Killable, 2)
	second := set("seccomp with notice", unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, 1)
	listener := len(s.Steps)
	s.SendFiles("the listener", initproc.RecNotice, jobFD, 1)
	s.Call("close the listener", unix.SYS_CLOSE, jobFD)
	jump := s.Ignore("go on", unix.SYS_GETPID)
	plain := set("seccomp", 0, 0)
	s.Steps[best].Next, s.Steps[best].Fail = initvm.To(listener), initvm.To(second)
	s.Steps[second].Fail = initvm.To(plain)
	s.Steps[jump].Next = initvm.To(plain + 1)
}
