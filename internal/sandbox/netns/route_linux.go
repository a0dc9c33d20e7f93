package netns

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"waldo/internal/sandbox"
)

// LocalRoute is a netlink message: "local 198.18.0.0/15 dev lo" (rtnetlink(7)). It makes all addresses
// of sandbox.Outside a network namespace's own.
func LocalRoute() []byte {
	m := make([]byte, 16+12+8+8)
	le := binary.NativeEndian
	le.PutUint32(m[0:], uint32(len(m)))
	le.PutUint16(m[4:], unix.RTM_NEWROUTE)
	le.PutUint16(m[6:], unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	m[16] = unix.AF_INET // struct rtmsg
	m[17] = byte(sandbox.Outside.Bits())
	m[20] = unix.RT_TABLE_LOCAL
	m[21] = unix.RTPROT_BOOT
	m[22] = unix.RT_SCOPE_HOST
	m[23] = unix.RTN_LOCAL
	le.PutUint16(m[28:], 8)
	le.PutUint16(m[30:], unix.RTA_DST)
	addr := sandbox.Outside.Addr().As4()
	copy(m[32:], addr[:])
	le.PutUint16(m[36:], 8)
	le.PutUint16(m[38:], unix.RTA_OIF)
	le.PutUint32(m[40:], 1) // lo is the first interface of every network namespace
	return m
}

// ResolvConf sends every question for a name to waldo.
var ResolvConf = "nameserver " + sandbox.Gateway.String() + "\noptions timeout:5 attempts:2\n"
