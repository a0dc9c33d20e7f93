// Package facts describes one execution. Waldo measures every fact or reads it from the kernel; none comes from the
// guest.
package facts

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"
)

// Status is how a call ended.
type Status string

// The ways a call ends. The empty status means that nothing is known.
const (
	OK        Status = "ok"
	Failed    Status = "failed"
	Denied    Status = "denied"
	Timeout   Status = "timeout"
	OOM       Status = "oom"
	Cancelled Status = "cancelled"
	Waiting   Status = "waiting"
)

// SideEffect is a call's known effect on the outside world.
type SideEffect uint8

// Not knowing is the default.
const (
	Unknown SideEffect = iota
	None
	Confirmed // also of a tool that answered with its own error, and can have acted before it
)

// And returns the effect of two calls: unknown outweighs confirmed, and none weighs least.
func (s SideEffect) And(o SideEffect) SideEffect {
	for _, most := range []SideEffect{Unknown, Confirmed} {
		if s == most || o == most {
			return most
		}
	}
	return None
}

// String returns the word used in JSON: unknown, none or confirmed.
func (s SideEffect) String() string {
	switch s {
	case None:
		return "none"
	case Confirmed:
		return "confirmed"
	}
	return "unknown"
}

// MarshalText makes the JSON form the word of String.
func (s SideEffect) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the word of String; any other word is Unknown, which claims nothing.
func (s *SideEffect) UnmarshalText(b []byte) error {
	switch string(b) {
	case "none":
		*s = None
	case "confirmed":
		*s = Confirmed
	default:
		*s = Unknown
	}
	return nil
}

// Limit names the limit that ended a run.
type Limit string

// The limits that can end a run.
const (
	LimitWall   Limit = "wall"
	LimitCPU    Limit = "cpu"
	LimitMemory Limit = "memory"
	LimitPids   Limit = "pids"
	LimitDisk   Limit = "disk"
	LimitOutput Limit = "output"
)

// NoMemoryCgroup is the warning of a run whose memory no cgroup bounded.
const NoMemoryCgroup = "memory.no_cgroup: the memory limit of the whole run is sampled, and not held by the kernel; " +
	"see waldo doctor"

// Facts is the one form in which an execution is described, the same on every surface: --json,
// MCP's _meta["waldo/facts"] (as Brief), the log and the console.
type Facts struct {
	CallID     string     `json:"call_id"`
	DecisionID string     `json:"decision_id"`
	Limit      *Limit     `json:"limit"` // nil: no limit ended the run
	Status     Status     `json:"status"`
	ExitCode   *int       `json:"exit_code"` // nil: no process ran to an exit
	Signal     *string    `json:"signal"`    // "SIGKILL"; nil: not ended by a signal
	TimedOut   bool       `json:"timed_out"`
	OOMKilled  bool       `json:"oom_killed"`
	Stdout     string     `json:"stdout"`
	Stderr     string     `json:"stderr"`
	Truncated  Truncated  `json:"truncated"`
	Usage      Usage      `json:"usage"`
	Limits     Limits     `json:"limits"`
	Sandbox    Sandbox    `json:"sandbox"`
	Network    Network    `json:"network"`
	Files      Files      `json:"files"`
	Denials    []Denial   `json:"denials"`
	Seen       []string   `json:"denials_seen"` // the kinds of denial this driver can observe
	SideEffect SideEffect `json:"side_effect"`
	Cleaned    int        `json:"cleaned,omitempty"` // texts of the answer without characters that do not show
	Masked     int        `json:"masked,omitempty"`  // values of the answer that are hidden or stand as tokens
	Warnings   []string   `json:"warnings"`
	Cut        []string   `json:"cut,omitempty"` // the lists that were longer than Bounded leaves them
}

// Starved returns a warning if a run has probably ended by a signal because it got too little memory: without a memory
// cgroup the kernel refuses memory to a process, and few programs survive that. "": it has not.
func (f Facts) Starved() string {
	const little = 64 << 20
	l := f.Limits.MemoryBytes
	if f.Signal == nil || !slices.Contains([]string{"SIGSEGV", "SIGABRT", "SIGBUS", "SIGTRAP", "SIGILL"}, *f.Signal) ||
		!slices.Contains(f.Warnings, NoMemoryCgroup) && f.Sandbox.Driver != "confined" ||
		l >= little && f.Usage.MemoryPeak < l/2 {
		return ""
	}
	return fmt.Sprintf("memory.too_little: %s is probably the end of a program that got too little memory: the limit is %d MB; "+
		"raise it with --memory-mb, or limits: {memory_mb: N} of the contract", *f.Signal, l>>20)
}

// Truncated says which stream was longer than its limit.
type Truncated struct {
	Stdout bool `json:"stdout"`
	Stderr bool `json:"stderr"`
}

// Usage is the resource use of the whole process tree.
type Usage struct {
	WallMS      float64 `json:"wall_ms"`
	CPUMS       float64 `json:"cpu_ms"` // user and system
	MemoryPeak  int64   `json:"memory_peak_bytes"`
	PidsPeak    int64   `json:"pids_peak"`
	OutputBytes int64   `json:"output_bytes"` // stdout and stderr as written, kept or not
	DiskBytes   int64   `json:"disk_bytes"`   // in the writable places at the end
}

// Limits holds the run's effective limits.
type Limits struct {
	WallMS      int64 `json:"wall_ms"`
	CPUMS       int64 `json:"cpu_ms"`
	MemoryBytes int64 `json:"memory_bytes"`
	Pids        int64 `json:"pids"`
	Output      int64 `json:"-"` // limit of each stream, in bytes; 0: not known
}

// Sandbox says where the run took place.
type Sandbox struct {
	ID       string `json:"id"`
	Driver   string `json:"driver"`
	Template string `json:"template"`
	Warm     bool   `json:"warm"`
}

// Network holds the destinations that the run was allowed, and those that it tried.
type Network struct {
	Policy       string    `json:"policy"` // denied or allowed
	AllowedHosts []string  `json:"allowed_hosts"`
	Contacted    []string  `json:"contacted"`
	Denied       []string  `json:"denied"`
	Attempts     []Attempt `json:"attempts"`           // through waldo's egress, each host, port and end once
	Packages     []Package `json:"packages,omitempty"` // whose files were fetched from a registry, each once
}

// Tried returns the attempts, and one for each refused destination that is not among them, as of a run without any
// egress.
func (n Network) Tried() []Attempt {
	all := slices.Clone(n.Attempts)
	for _, what := range n.Denied {
		host, port := what, 0
		if h, p, err := net.SplitHostPort(what); err == nil {
			if p, err := strconv.Atoi(p); err == nil {
				host, port = h, p
			}
		}
		if !slices.ContainsFunc(all, func(a Attempt) bool { return a.Host == host }) {
			all = append(all, Attempt{Host: host, Port: port, Times: 1})
		}
	}
	return all
}

// Package is one version of a package, as the path of its file in the registry says.
type Package struct {
	Manager string `json:"manager"` // npm or pypi
	Name    string `json:"name"`
	Version string `json:"version"`
	Kept    bool   `json:"kept,omitempty"` // waldo had the file of an earlier run; nothing went out
}

// Attempt is one host and port that a run tried to reach through egress, with the result.
type Attempt struct {
	Host     string `json:"host"`
	Port     int    `json:"port"` // 0: the name was asked for and not found
	Allowed  bool   `json:"allowed"`
	Why      string `json:"why,omitempty"`    // the code of the refusal or of the connection failure
	Method   string `json:"method,omitempty"` // of the HTTP that waldo read, or OTHER; empty: it read none
	Times    int    `json:"times"`
	Sent     int64  `json:"sent_bytes"`
	Received int64  `json:"received_bytes"`
}

// The results of an attempt.
const (
	Reached   = "reached"
	Unreached = "not reached" // allowed, and it did not connect
	Refused   = "refused"
)

// Result returns what became of the attempt.
func (a Attempt) Result() string {
	switch {
	case !a.Allowed:
		return Refused
	case a.Why != "":
		return Unreached
	}
	return Reached
}

// Files says which files the run touched, as far as the driver sees.
type Files struct {
	Read      []string `json:"read"`
	Written   []string `json:"written"`
	Artifacts []string `json:"artifacts"` // kept in the workspace
	// the folder of this machine that holds them; shown only at the terminal
	KeptIn  string `json:"kept_in,omitempty"`
	Partial bool   `json:"partial,omitempty"` // there are more than the lists say
	// protected names that appeared below a writable mount, and were taken out
	Held    []string `json:"held,omitempty"`
	Changes *Changes `json:"changes,omitempty"` // below the writable mounts; nil: there are none, or nothing looked
	// files that existed before the run; those in folders before the folders
	Removed []string `json:"-"`
}

// Changes are what a run changed below its writable mounts, as paths in the sandbox. Folders are not listed.
type Changes struct {
	ID        string   `json:"id"`   // for waldo changes; empty: nothing is kept of it
	Mode      string   `json:"mode"` // listed, keep, review or discard
	Written   []string `json:"written"`
	Renamed   []string `json:"renamed"` // as "old -> new"
	Removed   []string `json:"removed"`
	Protected []string `json:"protected"` // those of them with a protected name
	Partial   bool     `json:"partial"`   // there can be more
}

// Lines returns the changes, one a line: W for written, R for renamed, D for removed, and the file's name.
func (c *Changes) Lines() (lines []string) {
	for _, l := range []struct {
		sign  string
		names []string
	}{{"W", c.Written}, {"R", c.Renamed}, {"D", c.Removed}} {
		for _, n := range l.names {
			mark := ""
			if slices.Contains(c.Protected, n) {
				mark = "  (protected)"
			}
			lines = append(lines, l.sign+" "+Name(n)+mark)
		}
	}
	return lines
}

// Name returns a file's name for output on a line. It quotes a name with invisible characters or line ends, so that
// the name's author cannot forge other text on the line.
func Name(s string) string {
	if q := strconv.Quote(s); len(q) != len(s)+2 {
		return q
	}
	return s
}

// Denial is one thing the sandbox refused.
type Denial struct {
	Kind  string `json:"kind"` // network, filesystem or syscall
	What  string `json:"what"`
	Errno string `json:"errno"` // ENETUNREACH
}

// New returns facts with every list present and empty, so that JSON shows [] and never null.
func New() Facts {
	return Facts{
		Network: Network{
			Policy: "denied", AllowedHosts: []string{}, Contacted: []string{}, Denied: []string{}, Attempts: []Attempt{},
		},
		Files:    Files{Read: []string{}, Written: []string{}, Artifacts: []string{}},
		Denials:  []Denial{},
		Seen:     []string{},
		Warnings: []string{},
	}
}

// MS is a duration as facts give it: in milliseconds, to the microsecond.
func MS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
