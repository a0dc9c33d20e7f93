// Package job is the protocol of waldo and waldo-gvisor on the one socket between them. waldo sends the parts
// of the sandbox and the commands to run; waldo-gvisor sends how they ended. Neither the guest nor gVisor's own
// processes hold an end of the socket.
package job

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"
)

// Name is the argument zero by which waldo-gvisor knows that waldo started it; ControlFD is the
// descriptor of its end of the socket.
const (
	Name      = "waldo-sandbox"
	ControlFD = 3
)

// maxFrame bounds one message, in bytes.
const maxFrame = 16 << 20

// maxFDs bounds the descriptors that travel with one message.
const maxFDs = 64

// Sandbox is waldo's first message: the parts of the sandbox. The copies of held binds come with it. The answer
// brings a descriptor of each tmpfs. Both are in the order of the tree.
type Sandbox struct {
	ID       string `json:"id"`
	Hostname string `json:"hostname"`
	Tree     []Node `json:"tree"` // in the order in which it is made
	Limits   Limits `json:"limits"`
	Egress   Egress `json:"egress,omitzero"`
}

// Egress is the egress of a sandbox: its sockets come with the answer, after the folders. With the zero Egress the
// sandbox has an empty network stack of its own.
type Egress struct {
	Route   []byte   `json:"route"` // a netlink message
	Sockets []Socket `json:"sockets"`
}

// Socket is one that listens: TCP, or else UDP.
type Socket struct {
	UDP  bool    `json:"udp,omitempty"`
	Addr [4]byte `json:"addr"`
	Port uint16  `json:"port"`
}

// Node is one entry of the sandbox's root.
type Node struct {
	Path   string `json:"path"` // absolute, inside
	Kind   Kind   `json:"kind"`
	Held   bool   `json:"held,omitempty"`  // a bind of which a detached copy comes as a descriptor
	Exact  bool   `json:"exact,omitempty"` // no part of a bind's source is a link, also when it is opened
	Bytes  int64  `json:"bytes,omitempty"` // of a tmpfs
	Inodes int64  `json:"inodes,omitempty"`
	From   string `json:"from,omitempty"` // the text of a file, the target of a link, the source of a bind
}

// Kind is the kind of a Node. The empty kind is refused.
type Kind string

// The kinds of Node. A bind is read-only, without devices and setuid; a tmpfs is writable. A hide covers a file, or a
// folder if From is "/", with an empty one; what is not there needs none.
const (
	Dir   Kind = "dir"
	File  Kind = "file"
	Link  Kind = "link"
	Bind  Kind = "bind"
	Tmpfs Kind = "tmpfs"
	Hide  Kind = "hide"
)

// Limits hold for each command.
type Limits struct {
	Memory int64         `json:"memory"` // bytes, of all that the guest holds
	CPU    time.Duration `json:"cpu"`    // 0: waldo counts it itself
	Pids   int64         `json:"pids"`
	Files  int64         `json:"files"`
	Disk   int64         `json:"disk"` // bytes of one file
	// Own is how many bytes gVisor's own processes may grow by beside Memory while a command runs: its files and
	// sockets are held there. 0: a cgroup bounds them.
	Own int64 `json:"own,omitempty"`
}

// Slack is how far a guest may pass its limit of memory: where Linux copies 4 KiB that a forked
// process writes to, gVisor copies up to 2 MiB, so a tree of processes holds more there.
func Slack(memory int64) int64 { return memory / 4 }

// Run asks for one command. Its standard streams, and perhaps a bridge, travel with it as
// descriptors.
type Run struct {
	Argv   []string `json:"argv"`
	Env    []string `json:"env"`
	Dir    string   `json:"dir"`
	Bridge bool     `json:"bridge"` // the fourth descriptor becomes number 3 inside
}

// Ask is one message of waldo: exactly one field is set.
type Ask struct {
	Sandbox *Sandbox `json:"sandbox,omitempty"`
	Boot    *Boot    `json:"boot,omitempty"`
	Run     *Run     `json:"run,omitempty"`
	Kill    *Kill    `json:"kill,omitempty"`
	Assign  *Assign  `json:"adopt,omitempty"`
}

// Boot starts a kernel before the command that will need it. It has no answer.
type Boot struct{}

// Kill ends the command that runs; its Answer follows.
type Kill struct{}

// Assign announces the command's job: earlier use does not count.
type Assign struct{}

// Answer is one message of waldo-gvisor: exactly one field is set, or Error.
type Answer struct {
	Ready   *Ready   `json:"ready,omitempty"`
	Started *Started `json:"started,omitempty"`
	End     *End     `json:"-"`
	Error   string   `json:"error,omitempty"`
}

// Ready says that the sandbox is made. Descriptors of its tmpfs folders travel with it.
type Ready struct{}

// Started says that the first instruction of the command is about to run.
type Started struct{}

// Denial is one thing that the kernel in the sandbox refused (facts.Denial).
type Denial struct {
	Kind  string `json:"kind"`
	What  string `json:"what"`
	Errno string `json:"errno"`
}

// Seen are the kinds of Denial that End tells of.
var Seen = []string{"filesystem", "network", "syscall"}

// End says how the command ended. It is on the path of every run, and not said in JSON.
type End struct {
	Status     uint32        // as wait(2) tells it
	Still      bool          // the remaining processes are frozen for good, and hold their streams
	NoStart    int           // an errno: the command could not be executed
	Over       string        // cpu or memory: the limit that our own watch saw exceeded
	CPU        time.Duration // of every process of the sandbox since it started, if there is a limit
	Memory     int64         // bytes, the most that the guest was seen to hold
	Pids       int64         // the most that were seen at once
	Denials    []Denial
	PidsDenied bool // a process was refused at the limit
}

// The encoding of an End: a byte that begins no JSON, one byte of flags, the numbers, and the denials as JSON
// if there are any.
const (
	endMark = 0
	endSize = 2 + 4 + 4 + 3*8

	endStill, endPidsDenied, endCPU, endMemory = 1, 2, 4, 8
)

func (e *End) append(b []byte) ([]byte, error) {
	flags := flag(endStill, e.Still) | flag(endPidsDenied, e.PidsDenied) | flag(endCPU,
		e.Over == "cpu") | flag(endMemory, e.Over == "memory")
	b = append(b, endMark, flags)
	b = binary.LittleEndian.AppendUint32(b, e.Status)
	b = binary.LittleEndian.AppendUint32(b, uint32(e.NoStart))
	for _, n := range []int64{int64(e.CPU), e.Memory, e.Pids} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	if len(e.Denials) == 0 {
		return b, nil
	}
	text, err := json.Marshal(e.Denials)
	return append(b, text...), err
}

func flag(bit byte, set bool) byte {
	if set {
		return bit
	}
	return 0
}

func parseEnd(b []byte) (*End, error) {
	if len(b) < endSize {
		return nil, fmt.Errorf("an end of %d bytes", len(b))
	}
	flags := b[1]
	e := &End{Still: flags&endStill != 0, PidsDenied: flags&endPidsDenied != 0, Denials: []Denial{}}
	switch {
	case flags&endCPU != 0:
		e.Over = "cpu"
	case flags&endMemory != 0:
		e.Over = "memory"
	}
	number := func(at int) int64 { return int64(binary.LittleEndian.Uint64(b[at:])) }
	e.Status, e.NoStart = binary.LittleEndian.Uint32(b[2:]), int(binary.LittleEndian.Uint32(b[6:]))
	e.CPU, e.Memory, e.Pids = time.Duration(number(10)), number(18), number(26)
	// the low bits of one that only stopped
	if e.Status > 0xffff || e.Status&0x7f == 0x7f || e.CPU < 0 || e.Memory < 0 || e.Pids < 0 {
		return nil, fmt.Errorf("an end that no command has: status %#x, %d ns, %d bytes, %d processes", e.Status, e.CPU,
			e.Memory, e.Pids)
	}
	if len(b) == endSize {
		return e, nil
	}
	return e, json.Unmarshal(b[endSize:], &e.Denials)
}

// encode returns a frame: four bytes of length, then JSON, or an End.
func encode(v any) ([]byte, error) {
	frame := make([]byte, 4, 64)
	var err error
	if a, ok := v.(Answer); ok && a.End != nil {
		frame, err = a.End.append(frame)
	} else {
		var body []byte
		body, err = json.Marshal(v)
		frame = append(frame, body...)
	}
	if err != nil {
		return nil, err
	}
	size := len(frame) - 4
	if size > maxFrame {
		return nil, fmt.Errorf("a message of %d bytes is longer than %d", size, maxFrame)
	}
	binary.LittleEndian.PutUint32(frame, uint32(size))
	return frame, nil
}

// decode reads what encode wrote after the length.
func decode(b []byte, v any) (err error) {
	a, ok := v.(*Answer)
	if !ok || len(b) == 0 || b[0] != endMark {
		return json.Unmarshal(b, v)
	}
	a.End, err = parseEnd(b)
	return err
}
