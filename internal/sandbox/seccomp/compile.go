package seccomp

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// Arch is a processor architecture.
type Arch uint8

// The architectures a filter can be made for.
const (
	AMD64 Arch = iota + 1
	ARM64
)

// Host is the architecture of this process; 0 where no filter can be made for it.
func Host() Arch {
	switch runtime.GOARCH {
	case "amd64":
		return AMD64
	case "arm64":
		return ARM64
	}
	return 0
}

// audit returns the kernel's number of the architecture (AUDIT_ARCH_*, linux/audit.h).
func (a Arch) audit() uint32 {
	return map[Arch]uint32{AMD64: 0xc000003e, ARM64: 0xc00000b7}[a]
}

// Number returns the number of a system call on the architecture, and whether it has that call.
func (a Arch) Number(name string) (uint32, bool) {
	n, ok := numbers[name]
	if !ok || a == 0 || n[a-1] < 0 {
		return 0, false
	}
	return uint32(n[a-1]), true
}

// Profile holds the options of a filter. The zero Profile allows only the calls that every sandbox can make.
type Profile struct {
	Inet     bool // TCP, UDP and route questions: only where a network namespace is the wall
	Shared   bool // memfd, shared anonymous memory, System V IPC: only where a cgroup counts their memory
	Affinity bool // sched_setaffinity: only where a cgroup bounds the processors
	Watch    bool // inotify, F_NOTIFY and set-id files: only where the files in sight are objects of the sandbox's own
	Live     bool // inotify alone: a folder of the person that runs the sandbox is in sight
	// Terminals lets commands make pseudo-terminals, and trace their own processes: only where no other process is in sight.
	Terminals bool
	Own       bool     // limits and priority of others: only where no process of another command is in sight
	Bare      bool     // no namespaces around it: the filter refuses calls that they would confine
	Notify    []string // calls answered by a listener (SECCOMP_RET_USER_NOTIF) in place of Allow or an errno
	Ends      bool     // exit_group, and kill with a number from EndSignal, are answered by the listener too
}

// EndSignal is an invalid signal number: kill(2) refuses it. A process that knows of the listener sends it to
// end at once, with the status in the low byte. Its own exit_group would take longer.
const EndSignal = 0xf7616c00

// Program is a filter: an array of struct sock_filter in the kernel's layout.
type Program []byte

// MaxInsns is how many instructions the kernel takes (BPF_MAXINSNS).
const MaxInsns = 4096

// Len returns the number of instructions.
func (p Program) Len() int { return len(p) / 8 }

const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16 // the low half of argument i is at 16+8i on little-endian machines
)

// BPF operations that seccomp takes (linux/bpf_common.h).
const (
	opLoad = 0x20
	opAnd  = 0x54
	opJump = 0x05
	opEq   = 0x15
	opGe   = 0x35
	opRet  = 0x06
)

type insn struct {
	op     uint16
	jt, jf uint8
	k      uint32
}

// Compile makes the filter. It refuses an unknown architecture and an unknown name in Notify.
//
// The filter checks the architecture before all else, because the same number is another call in
// the 32-bit table; a process that uses that table is killed. The x32 calls, whose numbers begin at
// 0x40000000, are beyond the last number of the table and so do not exist.
func Compile(a Arch, p Profile) (Program, error) {
	rules, err := rulesFor(a, p)
	if err != nil {
		return nil, err
	}
	body, err := tree(ranges(rules))
	if err != nil {
		return nil, err
	}
	out := []insn{
		{opLoad, 0, 0, offArch},
		{opEq, 1, 0, a.audit()},
		{opRet, 0, 0, Kill},
		{opLoad, 0, 0, offNumber},
	}
	out = append(out, body...)
	if len(out) > MaxInsns {
		return nil, fmt.Errorf("seccomp: a filter of %d instructions; the kernel takes %d", len(out), MaxInsns)
	}
	return encode(out), nil
}

// rulesFor gives each system call number of the architecture its rule.
func rulesFor(a Arch, p Profile) (map[uint32]rule, error) {
	if a != AMD64 && a != ARM64 {
		return nil, fmt.Errorf("seccomp: no filter for this architecture (%s); amd64 and arm64 have one", runtime.GOARCH)
	}
	byName := filtered(p)
	put := func(g group, answer uint32) {
		for _, name := range strings.Fields(g.calls) {
			byName[name] = rule{other: answer}
		}
	}
	for _, g := range allowed {
		put(g, Allow)
	}
	for _, g := range refused {
		put(g, eperm)
	}
	put(pretended, Errno) // errno 0: success
	put(counted, eperm)
	if p.Shared {
		put(counted, Allow)
	}
	if p.Terminals {
		put(tracing, Allow)
	}
	put(watching, eperm)
	if p.Watch || p.Live {
		put(watching, Allow)
	}
	if !p.Watch || p.Bare { // files of the host's may be in sight, and writable
		noSetID(byName)
	}
	if !p.Own || p.Bare {
		ownOnly(byName)
	}
	if p.Bare {
		bareRules(byName)
	}
	for _, name := range p.Notify {
		if p.Terminals && slices.Contains(strings.Fields(tracing.calls), name) {
			continue // there is no refusal to notify of
		}
		if _, ok := numbers[name]; !ok {
			return nil, fmt.Errorf("seccomp: no system call %q to notify of", name)
		}
		byName[name] = rule{other: Notify}
	}
	if p.Ends {
		byName["exit_group"] = rule{other: Notify}
		byName["kill"] = first(Allow, when(Notify, bits(1, 0xffffff00, EndSignal)))
	}
	out := map[uint32]rule{}
	for name, r := range byName {
		if nr, ok := a.Number(name); ok {
			out[nr] = r
		}
	}
	return out, nil
}

// span is a run of numbers, from start to the next span, with one rule.
type span struct {
	start uint32
	rule  rule
}

// ranges joins neighbouring numbers that have the same plain answer; a number without a rule has
// ENOSYS.
func ranges(rules map[uint32]rule) []span {
	var last uint32
	for nr := range rules {
		last = max(last, nr)
	}
	var out []span
	for nr := uint32(0); nr <= last+1; nr++ {
		r, ok := rules[nr]
		if !ok {
			r = rule{other: enosys}
		}
		if n := len(out); n > 0 && r.clauses == nil && out[n-1].rule.clauses == nil && r.other == out[n-1].rule.other {
			continue
		}
		out = append(out, span{nr, r})
	}
	return out
}

// tree is a binary search for the span that the number falls in.
func tree(s []span) ([]insn, error) {
	if len(s) == 1 {
		return leaf(s[0].rule)
	}
	mid := len(s) / 2
	low, err := tree(s[:mid])
	if err != nil {
		return nil, err
	}
	high, err := tree(s[mid:])
	if err != nil {
		return nil, err
	}
	out := []insn{{opGe, 0, 1, s[mid].start}, {opJump, 0, 0, uint32(len(low))}}
	return append(append(out, low...), high...), nil
}

// leaf checks the arguments, clause by clause, and answers.
func leaf(r rule) ([]insn, error) {
	var out []insn
	for _, c := range r.clauses {
		body := []insn{{opRet, 0, 0, c.answer}}
		for _, t := range slices.Backward(c.tests) {
			check, err := match(t, len(body))
			if err != nil {
				return nil, err
			}
			body = append(check, body...)
		}
		out = append(out, body...)
	}
	return append(out, insn{opRet, 0, 0, r.other}), nil
}

// match falls through when t holds and otherwise skips the rest of its clause, of n instructions.
func match(t test, n int) ([]insn, error) {
	if len(t.in) > 200 || n > 250 {
		return nil, fmt.Errorf("seccomp: a test of %d values before %d instructions: too far for a BPF jump", len(t.in), n)
	}
	out := []insn{{opLoad, 0, 0, uint32(offArgs + 8*t.arg)}}
	if t.mask != ^uint32(0) {
		out = append(out, insn{opAnd, 0, 0, t.mask})
	}
	for i, v := range t.in {
		left := uint8(len(t.in) - 1 - i)
		in := insn{opEq, left, 0, v}
		if left == 0 {
			in.jf = uint8(n)
		}
		out = append(out, in)
	}
	return out, nil
}

func encode(in []insn) Program {
	out := make(Program, 0, 8*len(in))
	for _, i := range in {
		out = binary.LittleEndian.AppendUint16(out, i.op)
		out = append(out, i.jt, i.jf)
		out = binary.LittleEndian.AppendUint32(out, i.k)
	}
	return out
}

// Run answers as the kernel would for one call: the audit number of an architecture, the number
// of the call and its arguments. A listener uses it to learn what the filter without Notify says.
// A malformed program kills.
func (p Program) Run(arch, nr uint32, args [6]uint64) uint32 {
	var data [64]byte
	binary.LittleEndian.PutUint32(data[offNumber:], nr)
	binary.LittleEndian.PutUint32(data[offArch:], arch)
	for i, a := range args {
		binary.LittleEndian.PutUint64(data[offArgs+8*i:], a)
	}
	var acc uint32
	for pc := 0; pc < p.Len(); pc++ {
		op, jt, jf := binary.LittleEndian.Uint16(p[8*pc:]), int(p[8*pc+2]), int(p[8*pc+3])
		k := binary.LittleEndian.Uint32(p[8*pc+4:])
		switch op {
		case opLoad:
			if k > 60 || k%4 != 0 {
				return Kill
			}
			acc = binary.LittleEndian.Uint32(data[k:])
		case opAnd:
			acc &= k
		case opJump:
			pc += int(k)
		case opEq:
			pc += choose(acc == k, jt, jf)
		case opGe:
			pc += choose(acc >= k, jt, jf)
		case opRet:
			return k
		default:
			return Kill
		}
	}
	return Kill
}

func choose(yes bool, a, b int) int {
	if yes {
		return a
	}
	return b
}
