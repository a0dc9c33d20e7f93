//go:build linux

package landlock

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rules say what is let through. The zero Rules let through no file, no TCP port and no peer outside the
// sandbox.
type Rules struct {
	Execute  []string // files and folders, with all beneath: to execute and read
	Read     []string // to read
	Write    []string // to read and change, never as devices
	Exact    []string // of all these: no part is a link, also when it is opened
	AnyFile  bool     // leave files to the mounts
	AnyTCP   bool     // leave TCP to the network namespace
	AnyPeer  bool     // leave abstract sockets and signals alone
	Signals  bool     // leave signals alone: a PID namespace holds who can get one
	NeedFull bool     // refuse a kernel that cannot hold to all of it
}

// Ruleset is the result of Open. FD is for landlock_restrict_self(FD, 0) and belongs to the caller. It is -1 if
// nothing could be restricted.
type Ruleset struct {
	FD   int
	ABI  int      // the kernel's version of the interface; 0: no Landlock
	Lost []string // the restrictions that this kernel does not support
}

// Access to files, by the bits of linux/landlock.h.
const (
	Execute   = 1 << 0
	WriteFile = 1 << 1
	ReadFile  = 1 << 2
	ReadDir   = 1 << 3
	MakeChar  = 1 << 6
	MakeBlock = 1 << 11
	Refer     = 1 << 13
	Truncate  = 1 << 14
	IoctlDev  = 1 << 15

	ReadAccess = ReadFile | ReadDir

	firstAll    = 1<<13 - 1 // the rights that ABI 1 knows
	onFiles     = Execute | WriteFile | ReadFile | Truncate | IoctlDev
	neverToGive = MakeChar | MakeBlock | IoctlDev
	tcpAll      = 1<<0 | 1<<1 // bind, connect
	scopeAll    = 1<<0 | 1<<1 // abstract Unix sockets, signals

	scopeAbstract = 1 << 0
)

// Scopes is the first ABI that keeps signals and abstract sockets in: Linux 6.12.
const Scopes = 6

// ABI returns the version of the kernel's Landlock, 0 where it is absent or switched off.
func ABI() int {
	const version = 1
	v, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, version)
	if e != 0 {
		return 0
	}
	return int(v)
}

// attr is struct landlock_ruleset_attr; older kernels take a prefix of it.
type attr struct{ fs, net, scoped uint64 }

// FilesAt returns every right over files that the ABI knows.
func FilesAt(abi int) uint64 {
	all := uint64(0)
	for _, r := range []struct {
		from int
		bits uint64
	}{{1, firstAll}, {2, Refer}, {3, Truncate}, {5, IoctlDev}} {
		if abi >= r.from {
			all |= r.bits
		}
	}
	return all
}

// WriteAccess returns the rights over what may be changed, without those to read and execute it.
func WriteAccess(abi int) uint64 { return FilesAt(abi) &^ (neverToGive | ReadAccess | Execute) }

// OnFile returns those of some rights that a file can have: others are of folders alone.
func OnFile(access uint64) uint64 { return access & onFiles }

// handled returns the part of r that a kernel of the ABI supports, and the names of the rest.
func handled(r Rules, abi int) (attr, []string) {
	var a attr
	var lost []string
	need := func(wanted bool, from int, what string) bool {
		if wanted && abi < from {
			lost = append(lost, fmt.Sprintf("%s (Landlock ABI %d, this kernel has %d)", what, from, abi))
		}
		return wanted && abi >= from
	}
	if need(!r.AnyFile, 1, "files") {
		a.fs = FilesAt(abi)
		need(true, 3, "truncating files")
		need(true, 5, "device ioctls")
	}
	if need(!r.AnyTCP, 4, "TCP") {
		a.net = tcpAll
	}
	if need(!r.AnyPeer, 6, "abstract sockets and signals") {
		a.scoped = scopeAll
		if r.Signals {
			a.scoped = scopeAbstract
		}
	}
	return a, lost
}

// Open builds a ruleset. A path in it must exist. An older kernel gets the restrictions that it supports; Lost
// lists the others. With NeedFull, a non-empty Lost is an error.
func Open(r Rules) (Ruleset, error) { return open(r, ABI()) }

func open(r Rules, abi int) (Ruleset, error) {
	a, lost := handled(r, abi)
	s := Ruleset{FD: -1, ABI: abi, Lost: lost}
	if r.NeedFull && len(lost) > 0 {
		return s, fmt.Errorf("landlock: this kernel cannot hold to %q", lost)
	}
	if a == (attr{}) {
		return s, nil
	}
	size := unsafe.Sizeof(a.fs)
	if abi >= 4 {
		size += unsafe.Sizeof(a.net)
	}
	if abi >= 6 {
		size += unsafe.Sizeof(a.scoped)
	}
	fd, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&a)), size, 0)
	if e != 0 {
		return s, fmt.Errorf("landlock_create_ruleset: %w", e)
	}
	s.FD = int(fd)
	if a.fs == 0 {
		return s, nil
	}
	for _, l := range []struct {
		paths  []string
		access uint64
	}{{r.Execute, Execute | ReadAccess}, {r.Read, ReadAccess}, {r.Write, WriteAccess(abi) | ReadAccess}} {
		for _, p := range l.paths {
			how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC}
			if slices.Contains(r.Exact, p) {
				how.Resolve = unix.RESOLVE_NO_SYMLINKS
			}
			if err := s.allow(p, how, l.access&a.fs); err != nil {
				unix.Close(s.FD)
				s.FD = -1
				return s, err
			}
		}
	}
	return s, nil
}

// allow adds the path with all beneath it.
func (s Ruleset) allow(path string, how *unix.OpenHow, access uint64) error {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, how)
	if err != nil {
		return fmt.Errorf("landlock: %s: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("landlock: %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		access = OnFile(access)
	}
	b := Beneath(access, fd)
	if _, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(s.FD), RulePathBeneath,
		uintptr(unsafe.Pointer(&b[0])), 0, 0, 0); e != 0 {
		return fmt.Errorf("landlock_add_rule %s: %w", path, e)
	}
	return nil
}

// RulePathBeneath is the rule type that goes with Beneath.
const RulePathBeneath = 1

// Beneath is struct landlock_path_beneath_attr, for a landlock_add_rule made in the child about a
// descriptor that exists only there.
func Beneath(access uint64, fd int) []byte {
	b := binary.NativeEndian.AppendUint64(nil, access)
	return binary.NativeEndian.AppendUint32(b, uint32(fd))
}
