package confined

import "waldo/internal/sandbox"

// Promises lists the classes of sandboxtest that the level promises and those that it does not, each with its
// reason.
func (d *Driver) Promises() []sandbox.Promise { return promises }

var promises = []sandbox.Promise{
	{Class: "network", Held: true, Why: "seccomp: no socket can be made, not even a Unix one; only connected pairs"},
	{Class: "identity", Held: true,
		Why: "a user that is not root, no capability in any set, no new privileges, a session of its own; as root a user " +
			"of its own"},
	{Class: "contents of files", Held: true,
		Why: "Landlock: nothing but /usr, libraries and a few files of /etc can be read, nothing but the sandbox's " +
			"folders written"},
	{Class: "metadata of files", Held: true,
		Why: "seccomp: chmod, chown, times and attributes by path are refused everywhere, and set-id bits by any way"},
	{Class: "programs and files that a profile names", Held: true, Why: "Landlock: no other is executed or opened"},
	{Class: "loading of code from folders",
		Why: "a program's loader can be made to load a file of /workspace as code: no mount of it without execution"},
	{Class: "signals and tracing", Held: true, Why: "Landlock scope (ABI 6), and no ptrace"},
	{Class: "orphans", Held: true, Why: "a supervisor adopts and ends all that is left"},
	{Class: "output", Held: true, Why: "cut while it is read, as in every sandbox"},
	{Class: "time", Held: true, Why: "wall clock and processor time of the whole tree, by waldo's own clock"},
	{Class: "sockets and pipes of folders", Held: true,
		Why: "seccomp: no socket is made or connected; Landlock: no pipe of a shown folder is written to"},
	{Class: "watching files", Held: true, Why: "seccomp: no inotify, no F_NOTIFY and no lease"},
	{Class: "page cache", Held: true,
		Why: "seccomp: no RWF_NOWAIT, no mincore, and no advice that empties it; how long a read takes and " +
			"/proc/self/pagemap still tell"},
	{Class: "reading from pipes of folders",
		Why: "a pipe in a shown folder gives its bytes to any reader: no mount namespace, so no overlay"},
	{Class: "locks of files",
		Why: "locks on /usr and on shown folders are seen by other sandboxes and by this machine: no overlay"},
	{Class: "names of files", Why: "names, sizes and modes of the host's files can be asked for: no mount namespace"},
	{Class: "folders at their names",
		Why: "/workspace and /tmp are folders of other names, given by HOME, TMPDIR and the working folder; nothing can be " +
			"shown at another name"},
	{Class: "processes out of sight", Why: "process numbers of the host can be seen to exist; /proc is closed"},
	{Class: "host name", Why: "it is the host's: no UTS namespace"},
	{Class: "own loopback", Why: "programs in the sandbox cannot speak to one another by sockets"},
	{Class: "bounding set",
		Why: "started by an ordinary user it stays as it was: only root can make it smaller; no new privileges keeps it " +
			"from being of use"},
	{Class: "own shared memory",
		Why: "/dev/shm is the host's, and closed: no named semaphores, so no pool of Python's multiprocessing"},
	{Class: "folders of the owner alone",
		Why: "started by root, the sandbox's own user cannot be shown what only another may read: no id-mapped mounts"},
	{Class: "memory of the whole tree", Why: "the kernel limits each process; the sum is measured every 10 ms"},
	{Class: "disk of the whole sandbox", Why: "the kernel limits each file; the sum is measured every 50 ms"},
	{Class: "processes of the sandbox alone",
		Why: "counted by the kernel for the user, and by waldo every 10 ms; started by an ordinary user they share the " +
			"count of the host's"},
	{Class: "processors", Held: true, Why: "pinned to as many as it may fill, which seccomp keeps it from changing"},
	{Class: "templates", Why: "the only root is the host's, and registry passwords in its /usr are readable"},
}
