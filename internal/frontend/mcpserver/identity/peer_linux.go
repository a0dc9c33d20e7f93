package identity

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// Peer returns the uid of the process at the other end of a TCP connection within this machine. It asks the kernel, or
// reads its table (proc(5), /proc/net/tcp) where the kernel does not answer: the uid belongs to the creator of the
// socket, and only root can change it. Peer refuses a remote connection and one that has already ended.
func Peer(c net.Conn) (int, error) { return PeerOf(c.LocalAddr(), c.RemoteAddr()) }

// PeerOf is Peer for a connection whose two addresses are known.
func PeerOf(local, remote net.Addr) (int, error) {
	here, ok := local.(*net.TCPAddr)
	there, also := remote.(*net.TCPAddr)
	if !ok || !also {
		return 0, errors.New("the connection is not TCP")
	}
	if !there.IP.IsLoopback() {
		return 0, errors.New("the connection is from another machine")
	}
	from, to := there.AddrPort(), here.AddrPort()
	if uid, ok := diag(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()),
		netip.AddrPortFrom(to.Addr().Unmap(), to.Port())); ok {
		return known(int(uid))
	}
	// A client may have asked for IPv4 by way of an IPv6 socket; then it stands in the other table.
	if v4, my := there.IP.To4(), here.IP.To4(); v4 != nil && my != nil {
		if uid, err := owner("/proc/net/tcp", row(v4, there.Port), row(my, here.Port)); err != errNone {
			return uid, err
		}
	}
	return owner("/proc/net/tcp6", row(there.IP.To16(), there.Port), row(here.IP.To16(), here.Port))
}

// row spells an address as the table does: each four bytes as one number of this machine.
func row(ip net.IP, port int) string {
	var b strings.Builder
	for i := 0; i < len(ip); i += 4 {
		fmt.Fprintf(&b, "%08X", binary.NativeEndian.Uint32(ip[i:]))
	}
	return fmt.Sprintf("%s:%04X", b.String(), port)
}

var errNone = errors.New("the kernel knows no such connection")

// owner finds who has the socket with these two ends.
func owner(table, from, to string) (int, error) {
	f, err := os.Open(table)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		cells := strings.Fields(lines.Text())
		if len(cells) < 10 || cells[1] != from || cells[2] != to {
			continue
		}
		if state, err := strconv.ParseUint(cells[3], 16, 8); err != nil || !owned(int(state), cells[9] != "0") {
			continue
		}
		uid, err := strconv.Atoi(cells[7])
		if err != nil {
			return 0, err
		}
		return known(uid)
	}
	return 0, errNone
}

// known refuses the number that stands for every user whom this namespace does not have.
func known(uid int) (int, error) {
	unmapped, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err == nil && strings.TrimSpace(string(unmapped)) == strconv.Itoa(uid) {
		return 0, errors.New("its user is not known in this namespace")
	}
	return uid, nil
}
