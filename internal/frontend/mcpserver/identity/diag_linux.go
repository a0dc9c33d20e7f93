package identity

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// ends are the two ends of a connection as sock_diag(7) has them: ports and addresses in the order of the network.
type ends struct {
	FromPort, ToPort [2]byte
	From, To         [16]byte
	Interface        uint32
	Cookie           [2]uint32
}

// set writes one end.
func set(port *[2]byte, ip *[16]byte, a netip.AddrPort) {
	binary.BigEndian.PutUint16(port[:], a.Port())
	copy(ip[:], a.Addr().AsSlice())
}

// get reads one end.
func get(family uint8, port [2]byte, ip [16]byte) netip.AddrPort {
	a := netip.AddrFrom16(ip).Unmap()
	if family == unix.AF_INET {
		a = netip.AddrFrom4([4]byte(ip[:4]))
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(port[:]))
}

// diag asks the kernel for the one socket with these ends, and returns the user who made it. The table has a row for
// each connection of the machine, and reading it cost a third of a busy gateway's processor time. false: the kernel
// does not say, and the table is to be read.
func diag(from, to netip.AddrPort) (uid uint32, ok bool) {
	const anyCookie = ^uint32(0)
	question := struct {
		Header                    unix.NlMsghdr
		Family, Protocol, Ext, No uint8
		States                    uint32
		Ends                      ends
	}{
		Header: unix.NlMsghdr{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: unix.NLM_F_REQUEST},
		Family: unix.AF_INET6, Protocol: unix.IPPROTO_TCP, States: anyCookie,
		Ends: ends{Cookie: [2]uint32{anyCookie, anyCookie}},
	}
	if from.Addr().Is4() {
		question.Family = unix.AF_INET
	}
	set(&question.Ends.FromPort, &question.Ends.From, from)
	set(&question.Ends.ToPort, &question.Ends.To, to)
	question.Header.Len = uint32(binary.Size(question))
	sent, err := binary.Append(nil, binary.NativeEndian, question)
	if err != nil {
		return 0, false
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, false
	}
	defer unix.Close(fd)
	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if unix.Connect(fd, kernel) != nil || unix.Sendto(fd, sent, 0, kernel) != nil {
		return 0, false
	}
	buf := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT) // the kernel answers within Sendto
	if err != nil {
		return 0, false
	}
	var answer struct {
		Header                        unix.NlMsghdr
		Family, State, Timer, Retrans uint8
		Ends                          ends
		Expires, Receive, Send        uint32
		UID, Inode                    uint32
	}
	if err := binary.Read(bytes.NewReader(buf[:n]), binary.NativeEndian, &answer); err != nil {
		return 0, false
	}
	// For a connection that is gone, the kernel names a socket that listens at its port.
	same := get(answer.Family, answer.Ends.FromPort, answer.Ends.From) == from &&
		get(answer.Family, answer.Ends.ToPort, answer.Ends.To) == to
	if answer.Header.Type != unix.SOCK_DIAG_BY_FAMILY || !same || !owned(int(answer.State), answer.Inode != 0) {
		return 0, false
	}
	return answer.UID, true
}

// owned reports whether the user of a client's socket in a state is known. One that has sent all that it will still
// belongs to its program. One that its program has closed belongs to nobody, and the kernel gives 0 as its user and its
// inode.
func owned(state int, held bool) bool {
	sentAll := state == unix.BPF_TCP_FIN_WAIT1 || state == unix.BPF_TCP_FIN_WAIT2
	return state == unix.BPF_TCP_ESTABLISHED || sentAll && held
}
