//go:build linux

package main

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	pb "gvisor.dev/gvisor/pkg/sentry/seccheck/points/points_go_proto"
	"gvisor.dev/gvisor/pkg/sentry/socket"

	"waldo/internal/sandbox/gvisor/job"
)

// sends are the calls with which programs ask for names.
var sends = map[uintptr]bool{unix.SYS_SENDTO: true, unix.SYS_SENDMSG: true, unix.SYS_SENDMMSG: true}

// nameServer is where the C library asks without a resolv.conf. A sandbox with egress asks elsewhere.
const nameServer = "127.0.0.1:53"

// The largest DNS question over UDP (RFC 1035 §4.2.1), and the sizes of struct msghdr and struct iovec on 64 bits.
const (
	maxQuestion = 512
	sizeMsghdr  = 56
	sizeIovec   = 16
)

// asked returns the name in a DNS question that was sent to the name server; empty: the message is another. The
// question gets no answer, so the name is a denial. The guest's memory is read after the call, as in describe.
func asked(t *kernel.Task, info *pb.Syscall) string {
	to, size, at, n := info.Arg5, info.Arg6, info.Arg2, info.Arg3
	if info.Sysno != unix.SYS_SENDTO {
		b := make([]byte, sizeMsghdr) // of sendmmsg the first: the others ask for other records of the same name
		if _, err := t.CopyInBytes(hostarch.Addr(info.Arg2), b); err != nil {
			return ""
		}
		to, size = binary.NativeEndian.Uint64(b), uint64(binary.NativeEndian.Uint32(b[8:]))
		vector, parts := binary.NativeEndian.Uint64(b[16:]), binary.NativeEndian.Uint64(b[24:])
		b = b[:sizeIovec]
		if _, err := t.CopyInBytes(hostarch.Addr(vector), b); err != nil || parts != 1 {
			return ""
		}
		at, n = binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint64(b[8:])
	}
	if n == 0 || n > maxQuestion || target(t, int32(info.Arg1), to, size) != nameServer {
		return ""
	}
	b := make([]byte, n)
	if _, err := t.CopyInBytes(hostarch.Addr(at), b); err != nil {
		return ""
	}
	return job.Question(b)
}

// target is the address that a message goes to: its own, or that of the connected socket.
func target(t *kernel.Task, fd int32, to, size uint64) string {
	if to != 0 {
		return address(t, hostarch.Addr(to), size)
	}
	f := t.GetFile(fd)
	if f == nil {
		return ""
	}
	defer f.DecRef(t)
	s, ok := f.Impl().(socket.Socket)
	if !ok {
		return ""
	}
	peer, length, err := s.GetPeerName(t)
	if err != nil || peer == nil || int(length) > peer.SizeBytes() {
		return ""
	}
	b := make([]byte, peer.SizeBytes())
	peer.MarshalBytes(b)
	return job.Address(b[:length])
}
