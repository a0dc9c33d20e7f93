package job

const machine = 62 // EM_X86_64

// sleeperCode is
//
//	rt_sigaction(SIGCHLD, {SIG_IGN}, 0, 8)
//	for { pause() }
var sleeperCode = []byte{
	0xb8, 13, 0, 0, 0, // mov eax, 13
	0xbf, 17, 0, 0, 0, // mov edi, 17
	0x48, 0x8d, 0x35, 0x13, 0, 0, 0, // lea rsi, [rip+0x13]
	0x31, 0xd2, // xor edx, edx
	0x41, 0xba, 8, 0, 0, 0, // mov r10d, 8
	0x0f, 0x05, // syscall
	0xb8, 34, 0, 0, 0, // mov eax, 34
	0x0f, 0x05, // syscall
	0xeb, 0xf7, // jmp to the mov before
	1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // struct sigaction
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
}
