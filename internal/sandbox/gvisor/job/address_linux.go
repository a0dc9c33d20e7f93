package job

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// Address reads a socket address in the form of system calls (ip(7), ipv6(7), unix(7)). It returns
// "192.0.2.1:80", "unix:/path" or, for another family, "".
func Address(b []byte) string {
	if len(b) < 2 {
		return ""
	}
	switch family := binary.NativeEndian.Uint16(b); {
	case family == unix.AF_INET && len(b) >= 8:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:])).String()
	case family == unix.AF_INET6 && len(b) >= 24:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), binary.BigEndian.Uint16(b[2:])).String()
	case family == unix.AF_UNIX:
		path, _, _ := bytes.Cut(b[2:], []byte{0})
		return "unix:" + strings.ToValidUTF8(string(path), "\uFFFD")
	}
	return ""
}
