// Package sandbox says what a sandbox is: everything one sandbox may touch, as data, and the interface that
// each way of making sandboxes satisfies. It knows no contract, no policy and no MCP.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"waldo/internal/model/facts"
)

// Profile is everything one sandbox may touch. The zero Profile has no files, no network, no environment, and
// limits of zero, which Start refuses.
type Profile struct {
	ID       string   // "s_…"
	Owner    string   // whose share of the processors its commands use, of those whose commands run; "": one of its own
	Template Template // the root filesystem
	Mounts   []Mount
	Tmpfs    []Tmpfs
	Limits   Limits
	Network  Network
	Share    *Share    // whose processes and ports the commands share; nil: those of no other sandbox
	Prestart *Prestart // the first command, as far as it is known; a driver may have started it already; nil: nothing is
	// Terminals gives its commands pseudo-terminals, /dev/tty, all processors, and a debugger for their own
	// processes, where the driver can (namespace).
	Terminals bool
	// Console is the name of the first command's own terminal on this machine, as in /dev/pts/7. With Terminals it is
	// /dev/console in the sandbox, where the driver can (namespace). Empty: there is none.
	Console string
	Only    *Only // what its commands may execute, open and change of that; nil: all of it
}

// Only lists the files that the commands of a sandbox may use, of those that it shows. The kernel refuses all others. A
// path that ends in "/" is a folder with all beneath; links are followed. The devices of a sandbox are always included.
// Nothing on a mount or volume of the profile is executed, nor loaded as code.
type Only struct {
	Execute []string // programs, with the loaders of their format: to execute and read
	Read    []string
	Write   []string // to change, with all that is made there, but neither to execute nor to read
}

// Share names a sandbox whose commands run in one network namespace and, where each has a cgroup that ends it, in one
// PID namespace. Each has its own limits, mounts and files. A driver that cannot refuses it.
type Share struct {
	Dir string // a folder of this machine that only the sandbox's owner can enter; it need not be there
	// Apart: this command has what others have not, as a bridge or a secret in its environment. Start then returns
	// ErrApart where the kernel would let them read its memory.
	Apart bool
}

// ErrApart is returned by Start where a command cannot be held apart from others of its sandbox.
var ErrApart = errors.New("this kernel does not hold commands of one sandbox apart (Landlock, Linux 6.12)")

// Touches says in a line of text what a sandbox may touch, limits apart. Commands share processes and ports only where
// it is the same for all of them.
func (p Profile) Touches() string {
	text := fmt.Sprintf("%+v %q %d", p.Template, p.Network.Hosts, p.Network.Ports)
	for _, m := range p.Mounts {
		text += fmt.Sprintf(" %q %q %t %t %q %q %q %q", m.Source, m.Target, m.Writable, m.Live, m.Aside, m.Sealed, m.Lent, m.Hidden)
	}
	for _, t := range p.Tmpfs {
		text += fmt.Sprintf(" %q %t %t", t.Target, t.Sealed, t.Export)
	}
	if p.Terminals {
		text += " terminals " + p.Console
	}
	if p.Only != nil {
		text += fmt.Sprintf(" %q", *p.Only)
	}
	return text
}

// ErrFiles is returned by Start where the files that a sandbox starts with do not fit into it, or cannot be read.
var ErrFiles = errors.New("the files that it starts with do not fit or cannot be read")

// ErrDiffers is returned by Start where commands that run in a shared sandbox may touch other things.
var ErrDiffers = errors.New("commands that may touch other things run in the sandbox")

// Hostname is the name of the machine that a sandbox sees.
const Hostname = "waldo"

// Hosts is the /etc/hosts of a sandbox: its own name leads to its own loopback, and asks no name server.
const Hosts = "127.0.0.1 localhost\n::1 localhost\n127.0.0.1 " + Hostname + "\n::1 " + Hostname + "\n"

// Prestart is the part of a command that is known before its job: an interpreter that reads the job from its
// standard input. No agent can influence it.
type Prestart struct {
	Argv, Env []string
	Dir       string // empty: /workspace
	Prelude   string // the beginning of its standard input, the same for every job
	Bridge    bool   // descriptor 3 is a bridge
	Zygote    string // the same for an interpreter that sandboxes are forked from; empty: none can be
	Domain    string // the owner of these sandboxes: an interpreter of one domain is never forked for another
}

// Template is the root filesystem that a sandbox starts from, always read-only.
type Template struct {
	Name string // "host": the machine's own /usr and little else
	Dir  string // another root, as a folder of this machine; empty: the machine's own /usr
	// Packages is a folder of this machine whose folders python and node_modules are shown at PythonAt and NodeAt,
	// beside the machine's own /usr; empty: no such folder.
	Packages string
	// The user and group of commands, as the sandbox sees them; zero: InsideID. No command is root in a sandbox.
	UID, GID int
}

// PythonAt and NodeAt are the folders of a template's packages in a sandbox.
const (
	PythonAt = "/opt/waldo/python"
	NodeAt   = "/node_modules"
)

// InsideID is the user and group that commands have in a sandbox whose template names none.
const InsideID = 1000

// IDs returns the user and group of commands, as the sandbox sees them.
func (t Template) IDs() (uid, gid int) {
	uid, gid = t.UID, t.GID
	if uid <= 0 {
		uid = InsideID
	}
	if gid <= 0 {
		gid = InsideID
	}
	return uid, gid
}

// Mount shows a folder or file of the host inside the sandbox, without devices or setuid.
type Mount struct {
	Source, Target string
	// Exact says that no part of Source is a link. One that appears is refused, also at that moment.
	Exact bool
	// Writable shows the folder itself, and writes to it persist. Their size is not limited.
	Writable bool
	// Live, with Writable: a person's own folder, whose files can be watched as outside. The machine's own folders are
	// then shown without an overlay too.
	Live bool
	// Aside, with Writable, is a folder of this machine, on one that overlays can use, with empty folders upper and work.
	// Writes go to upper (overlayfs, "user." attributes), and the folder itself stays as it is.
	Aside  string
	Sealed []string // of a writable folder: paths below it that are read-only; none goes through a link
	// Lent are sealed files that a sandbox sees as links: to where each leads. It writes to what is there instead.
	Lent map[string]string
	// Hidden are paths below a folder that show as empty files, or as empty folders where they end in "/".
	Hidden []string
	// Template says that the folder is part of the template: it never changes, and is the same for every job of it.
	Template bool
}

// Folders returns the mounts of the template's packages.
func (t Template) Folders() (all []Mount) {
	if t.Packages == "" {
		return nil
	}
	for _, f := range []struct{ name, at string }{{"python", PythonAt}, {"node_modules", NodeAt}} {
		source := filepath.Join(t.Packages, f.name)
		if st, err := os.Stat(source); err == nil && st.IsDir() {
			all = append(all, Mount{Source: source, Target: f.at, Template: true})
		}
	}
	return all
}

// Tmpfs is a volume of bounded size inside the sandbox.
type Tmpfs struct {
	Target string
	Bytes  int64
	Inodes int64
	Export bool   // Sandbox.Export can copy its contents out at the end
	Seed   string // a folder of the host whose files are copied in before the first command; empty: none
	// Only are the files at the top of Seed that are copied, no others; nil: all of it.
	Only   []string
	Sealed bool // where the driver can (namespace), commands cannot write to it: it holds its seed
	// Except are names at its top that are places of their own: neither copied out nor compared.
	Except []string
}

// Network is the network of a sandbox. The zero value is a loopback interface of its own and no other. With
// ports, every name and address that waldo answers with is at that interface too. The egress server decides
// about each connection: a sandbox never has a route to the outside.
type Network struct {
	Hosts []string               // as the operator wrote them; a sandbox with hosts and no egress is refused
	Ports []uint16               // of TCP, at which the sandbox finds the outside; at most MaxPorts
	Serve func(Egress) io.Closer // gets the egress before the first command, and closed with the sandbox
}

// MaxPorts is how many ports of the outside a sandbox may have.
const MaxPorts = 24

// Egress is the egress of a sandbox: the sockets for its queries and connections. Its server owns it.
type Egress struct {
	Names net.PacketConn // questions for names (DNS over UDP), at Gateway port 53
	Proxy net.Listener   // at Gateway port ProxyPort, for programs that want a proxy
	TCP   []net.Listener // at every address of Outside, one for each of Network.Ports
}

// The addresses of the egress, as the sandbox sees them, in the benchmark range (RFC 2544), which no public
// host uses.
var (
	Outside = netip.MustParsePrefix("198.18.0.0/15")
	Gateway = netip.MustParseAddr("198.18.0.1")
)

// ProxyPort is where a sandbox finds an HTTP proxy at Gateway.
const ProxyPort = 3128

// Validate returns an error if no driver could hold to the network.
func (n Network) Validate() error {
	switch {
	case len(n.Hosts) > 0 && (len(n.Ports) == 0 || n.Serve == nil), len(n.Ports) > 0 && n.Serve == nil:
		return fmt.Errorf("hosts %q: the profile has no egress server", n.Hosts)
	case len(n.Ports) > MaxPorts:
		return fmt.Errorf("%d ports of the outside; at most %d", len(n.Ports), MaxPorts)
	case slices.Contains(n.Ports, 0), slices.Contains(n.Ports, 53), slices.Contains(n.Ports, ProxyPort):
		return fmt.Errorf("ports %d: 0, 53 and %d are not of the outside", n.Ports, ProxyPort)
	}
	return nil
}

// Limits hold for the whole process tree of a run. Start refuses any that is zero.
type Limits struct {
	Wall   time.Duration // from Start to reap, by our clock
	CPU    time.Duration // user and system, summed over the tree
	Memory int64         // bytes, summed over the tree where there is a cgroup
	Pids   int64         // processes and threads
	Files  int64         // open descriptors of one process
	Disk   int64         // bytes, of each volume
	Inodes int64         // of each volume
	Output int64         // limit in bytes for each of stdout and stderr
}

// Command is one program to run in a sandbox.
type Command struct {
	Argv   []string  // Argv[0] is looked up in the sandbox's PATH unless it holds a slash
	Env    []string  // the whole environment
	Dir    string    // empty: /workspace
	Stdin  io.Reader // nil: /dev/null; an InMemory is all there, and reading it does not wait
	Stdout io.Writer // beyond Facts.Stdout: a copy as it comes; may be nil
	Stderr io.Writer
	// Cut returns how many of the first n bytes of a text may be kept: it leaves out the beginning of a secret that
	// ends after them. More says that the text itself was cut at its end. nil: all n.
	Cut    func(text string, n int, more bool) int
	Pass   bool     // Stdout and Stderr get all of it, as a pipe would: Limits.Output holds for Facts alone
	Bridge *os.File // becomes descriptor 3; nil: none
	// TTY is one end of a terminal of waldo's own making, never the host's: it becomes the standard streams and the
	// command's controlling terminal. Stdin, Stdout and Stderr are then not used. nil: absent.
	TTY   *os.File
	Clock *Clock // stops the wall clock of Limits.Wall; nil: never
	// a server that speaks for hours: Stdout is passed on whole and neither kept, cut nor held to Limits.Output
	Serve  bool
	Direct *Direct // with Serve: uses the pipes instead of Stdin and Stdout, which are nil; nil: nothing does
}

// Direct uses the pipes of a command itself, without a goroutine to wake for each message. In gets waldo's end of the
// standard input, Out that of the standard output. Each returns after its last use; then the sandbox closes the end.
type Direct struct{ In, Out func(pipe *os.File) }

// InMemory is an input of Len bytes in memory.
type InMemory interface {
	io.Reader
	io.WriterTo
	Len() int
}

// Prestarted is an input that knows its own beginning, so that a check need not read it.
type Prestarted interface {
	// Skip skips prelude if the input begins with it and nothing has been read. It reports whether it did.
	Skip(prelude string) bool
}

// Ability is one thing a driver does to contain a run, and whether it works on this machine.
type Ability struct {
	Name string `json:"name"` // user namespace
	OK   bool   `json:"ok"`
	What string `json:"what"`           // the check that was made, or how it failed
	Hint string `json:"hint,omitempty"` // an action that would mend it
	Need bool   `json:"need"`           // without it the driver refuses to start
}

// Report is the result of a driver's checks on this machine.
type Report struct {
	Driver    string    `json:"driver"`
	OK        bool      `json:"ok"`
	Abilities []Ability `json:"abilities"`
}

// Checked returns the ability that one check is about. An error becomes What; its own hint, or its text behind "; ",
// becomes Hint.
func Checked(name string, need bool, done string, err error) Ability {
	a := Ability{Name: name, OK: err == nil, What: done, Need: need}
	if err != nil {
		a.What, a.Hint, _ = strings.Cut(err.Error(), "; ")
		if own := (HintError{}); errors.As(err, &own) {
			a.Hint = own.Hint()
		}
	}
	return a
}

// Add adds abilities. The report stays OK while every ability that the driver needs works.
func (r *Report) Add(all ...Ability) {
	for _, a := range all {
		a.What = strings.TrimPrefix(a.What, r.Driver+": ")
		r.OK = r.OK && (a.OK || !a.Need)
		r.Abilities = append(r.Abilities, a)
	}
}

// Promise is one thing that a sandbox of a driver keeps to, or does not, and why.
type Promise struct {
	Class string
	Held  bool
	Why   string
}

// Promiser is a driver that does not promise every class. sandboxtest proves each promise, and that the rest is
// refused or reported.
type Promiser interface {
	Promises() []Promise
}

// Driver is a way to make sandboxes.
type Driver interface {
	Name() string
	// Probe makes a sandbox, tests it from inside, and reports the abilities of this machine.
	Probe(ctx context.Context) Report
	// Start prepares a sandbox. It refuses a profile that it cannot hold to on this machine.
	Start(ctx context.Context, p Profile) (Sandbox, error)
}

// Sandbox is a running sandbox.
type Sandbox interface {
	// Run runs one command to its end and returns its facts. An error means that waldo itself failed. A command
	// that fails, is killed or cannot be found is reported in the facts.
	Run(ctx context.Context, c Command) (facts.Facts, error)
	// Export copies what the last run left in an exported Tmpfs to a folder of the host: regular
	// files and folders only, never following a link, never over an existing link.
	Export(target, dir string) ([]string, error)
	// Abilities returns what the sandbox can do besides. A wrapper returns those of the sandbox that it wraps.
	Abilities() Abilities
	// Close ends everything in the sandbox and removes what it was made of.
	Close() error
}

// Abilities are what some sandboxes can do and others cannot, which have nil there. They are one value of every
// Sandbox, and not interfaces of their own, so that no wrapper hides one.
type Abilities struct {
	// Bridge returns waldo's end of the waiting command's bridge (its descriptor 3), for the caller to own. It
	// returns nil if there is no bridge, or if it was returned before.
	Bridge func() *os.File
	// Share copies files that changed since its last call from an exported Tmpfs to the folder, and from the
	// folder to the Tmpfs; the first call copies all. It returns the paths of files that the folder got. It
	// follows no link and makes no folder that was removed. The folder never holds more than the Tmpfs may.
	Share func(target, dir string) (given []string, err error)
	// Pause stops the processes of the sandbox until Resume. The clocks continue: the wall-clock limit applies
	// to a paused run too.
	Pause, Resume func() error
	// Spent returns what everything in the sandbox has used so far. Call it before Close alone.
	Spent func() Use
	// PID returns the number that its first process has outside, for Reacher.
	PID func() int
	// Lacks are the warnings about the sandbox itself, known when it has started. The facts of each run have them too.
	Lacks []string
}

// Use is what everything in a sandbox uses. A value that nothing counts is 0.
type Use struct {
	CPU    time.Duration // user and system, so far
	Memory int64         // bytes at this moment
	Peak   int64         // bytes at most so far
}

// Reacher is a driver that can connect to ports of a sandbox's loopback, whichever waldo has the sandbox.
type Reacher interface {
	// Reach returns what connects to the sandbox whose first process has that number outside.
	Reach(pid int) (Reach, error)
}

// Reach connects to ports of one sandbox's loopback.
type Reach interface {
	Dial(port uint16) (net.Conn, error)
	Close() error
}

// Warmer is a sandbox that can be made before the job of it is there, and start its first command too.
type Warmer interface {
	Sandbox
	// Warm starts the command of the profile's Prestart, feeds it the head, and returns when it waits
	// for more.
	Warm(ctx context.Context) error
	// Assign gives a sandbox, whose command waits where its profile has one Prestart, to one job: the id, the wall
	// clock, the limit of output and the seeds of p. The rest of p must be what the sandbox was started with.
	Assign(p Profile) error
}

// Forker is a driver that may fork a sandbox from an interpreter that is running.
type Forker interface {
	Driver
	// Ready makes sure that sandboxes for the profile's Prestart can be forked, where they ever can, and returns
	// when they can. It takes as long as interpreters take to start.
	Ready(ctx context.Context, p Profile) error
}

// Forked is a sandbox that may have been forked from an interpreter, so that Warm is quicker than a start of
// the command.
type Forked interface {
	Warmer
	Forked() bool
	// WarmFast is a Warm that leaves out what would make the job itself quicker.
	WarmFast(ctx context.Context) error
}
