// Package job is what waldo and waldo-gvisor say to each other over the one socket between them:
// waldo says what the box is made of and what to run in it, waldo-gvisor says how that ended.
// Neither the guest nor gVisor's own processes hold an end of the socket.
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
	Name      = "waldo-box"
	ControlFD = 3
)

// maxFrame bounds one message, in bytes.
const maxFrame = 16 << 20

// maxFDs bounds the descriptors that travel with one message.
const maxFDs = 64

// Box is waldo's first message: what the box is made of. With it come the copies of
// held binds; the answer brings a descriptor of each tmpfs. Both are in the order of the tree.
type Box struct {
	ID       string `json:"id"`
	Hostname string `json:"hostname"`
	Tree     []Node `json:"tree"` // in the order in which it is made
	Limits   Limits `json:"limits"`
	Way      Way    `json:"way,omitzero"`
}

// Way is the way out of a box: with the answer come the sockets, after the folders. The zero Way is
// none, and then the box has a network stack of its own with nothing in it.
type Way struct {
	Route   []byte   `json:"route"` // a netlink message
	Sockets []Socket `json:"sockets"`
}

// Socket is one that listens: TCP, or else UDP.
type Socket struct {
	UDP  bool    `json:"udp,omitempty"`
	Addr [4]byte `json:"addr"`
	Port uint16  `json:"port"`
}

// Node is one entry of the box's root.
type Node struct {
	Path   string `json:"path"` // absolute, inside
	Kind   Kind   `json:"kind"`
	Held   bool   `json:"held,omitempty"`  // a bind of which a detached copy comes as a descriptor
	Bytes  int64  `json:"bytes,omitempty"` // of a tmpfs
	Inodes int64  `json:"inodes,omitempty"`
	From   string `json:"from,omitempty"` // the text of a file, the target of a link, the source of a bind
}

// Kind is what a Node is. The empty kind is refused.
type Kind string

// The kinds of Node. A bind is read-only, without devices and setuid; a tmpfs is writable.
const (
	Dir   Kind = "dir"
	File  Kind = "file"
	Link  Kind = "link"
	Bind  Kind = "bind"
	Tmpfs Kind = "tmpfs"
)

// Limits hold for each command.
type Limits struct {
	Memory int64         `json:"memory"` // bytes, of all that the guest holds
	CPU    time.Duration `json:"cpu"`    // 0: waldo counts it itself
	Pids   int64         `json:"pids"`
	Files  int64         `json:"files"`
	Disk   int64         `json:"disk"` // bytes of one file
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
	Box   *Box   `json:"box,omitempty"`
	Boot  *Boot  `json:"boot,omitempty"`
	Run   *Run   `json:"run,omitempty"`
	Kill  *Kill  `json:"kill,omitempty"`
	Adopt *Adopt `json:"adopt,omitempty"`
}

// Boot asks for a kernel ahead of the command that will need it. There is no answer.
type Boot struct{}

// Kill ends the command that runs; its Answer follows.
type Kill struct{}

// Adopt says that the command's job is there now: what it used before does not count.
type Adopt struct{}

// Answer is one message of waldo-gvisor: exactly one field is set, or Error.
type Answer struct {
	Ready   *Ready   `json:"ready,omitempty"`
	Started *Started `json:"started,omitempty"`
	End     *End     `json:"end,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// Ready says that the box is made. Descriptors of its tmpfs folders travel with it.
type Ready struct{}

// Started says that the first instruction of the command is about to run.
type Started struct{}

// Denial is one thing that the kernel in the box refused (facts.Denial).
type Denial struct {
	Kind  string `json:"kind"`
	What  string `json:"what"`
	Errno string `json:"errno"`
}

// Seen are the kinds of Denial that End tells of.
var Seen = []string{"filesystem", "network", "syscall"}

// End says how the command ended.
type End struct {
	Status     uint32        `json:"status"`   // as wait(2) tells it
	Still      bool          `json:"still"`    // what is left in the box stands still for good, and holds its streams
	NoStart    int           `json:"no_start"` // an errno: the command could not be executed
	Over       string        `json:"over"`     // cpu or memory: the limit that our own watch saw exceeded
	CPU        time.Duration `json:"cpu"`      // of every process of the box since it started, if there is a limit
	Memory     int64         `json:"memory"`   // bytes, the most that the guest was seen to hold
	Pids       int64         `json:"pids"`     // the most that were seen at once
	Denials    []Denial      `json:"denials"`
	PidsDenied bool          `json:"pids_denied"` // a process was refused at the limit
}

// encode returns a frame: four bytes of length, then JSON.
func encode(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(body) > maxFrame {
		return nil, fmt.Errorf("a message of %d bytes is longer than %d", len(body), maxFrame)
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...), nil
}
