package confined

// Promise is one class of attack and what this tier makes of it.
type Promise struct {
	Class string
	Held  bool
	Why   string
}

// Promises is what the tier promises and what it does not, each with its reason.
var Promises = []Promise{
	{"network", true, "seccomp: no socket can be made, not even a Unix one; only connected pairs"},
	{"files of the host: contents", true, "Landlock: nothing but /usr, libraries and a few files of /etc can be read, nothing but the box's folders written"},
	{"files of the host: metadata", true, "seccomp: chmod, chown, times and attributes by path are refused everywhere"},
	{"signals and tracing", true, "Landlock scope (ABI 6), and no ptrace"},
	{"orphans", true, "a supervisor adopts and ends all that is left"},
	{"pid namespace", false, "process numbers of the host can be seen to exist; /proc is closed"},
	{"mount namespace", false, "names, sizes and modes of the host's files can be asked for; /workspace and /tmp are folders of other names, given by HOME, TMPDIR and the working folder"},
	{"memory of the whole tree", false, "each process is held to the limit by the kernel; the sum is looked at every 10 ms"},
	{"disk", false, "each file is held to the limit by the kernel; the sum is looked at every 50 ms"},
	{"processes", false, "counted by the kernel for the user, and by waldo every 10 ms; as an ordinary user they share the count of the host's"},
	{"processors", false, "nothing bounds how many are used"},
}
