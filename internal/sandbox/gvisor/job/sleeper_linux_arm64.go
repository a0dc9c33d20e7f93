package job

import "encoding/binary"

const machine = 183 // EM_AARCH64

// sleeperCode is
//
//	rt_sigaction(SIGCHLD, {SIG_IGN}, 0, 8)
//	for { ppoll(0, 0, 0, 0) }
var sleeperCode = words(
	0xd28010c8,                                     // mov x8, 134
	0xd2800220,                                     // mov x0, 17
	0x10000181,                                     // adr x1, 48 bytes on
	0xd2800002,                                     // mov x2, 0
	0xd2800103,                                     // mov x3, 8
	0xd4000001,                                     // svc 0
	0xd2800000, 0xd2800001, 0xd2800002, 0xd2800003, // mov x0..x3, 0
	0xd2800928,             // mov x8, 73
	0xd4000001,             // svc 0
	0x17fffffa,             // b 6 instructions back
	0xd503201f,             // nop
	1, 0, 0, 0, 0, 0, 0, 0, // struct sigaction
)

func words(all ...uint32) []byte {
	var b []byte
	for _, w := range all {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}
