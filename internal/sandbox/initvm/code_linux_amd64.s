#include "textflag.h"

// The machine walks steps (steps.go). It is never called here: its bytes are copied into an
// executable of their own, or into a zygote, which calls them as a C function. R12: the header at
// dataBase; R13: the step at hand.
TEXT ·machine(SB),NOSPLIT|NOFRAME,$0-0
	PUSHQ	BX	// the callee's to keep (System V ABI)
	PUSHQ	R12
	PUSHQ	R13
	MOVQ	$0x70200000, R12
	MOVQ	0(R12), R13	// header.entry
step:
	MOVQ	0(R13), AX	// nr
	CMPQ	AX, $-1		// leave
	JEQ	leave
	MOVQ	8(R13), DI	// args
	MOVQ	16(R13), SI
	MOVQ	24(R13), DX
	MOVQ	32(R13), R10
	MOVQ	40(R13), R8
	MOVQ	48(R13), R9
	SYSCALL
	CMPQ	AX, $0xfffffffffffff001
	JCC	failed
	MOVQ	56(R13), BX	// store
	TESTQ	BX, BX
	JEQ	stored
	MOVQ	AX, (BX)
stored:
	MOVQ	64(R13), BX	// equal
	TESTQ	BX, BX
	JEQ	next
	CMPQ	AX, (BX)
	JNE	next
	MOVQ	72(R13), R13	// same
	JMP	step
next:
	MOVQ	80(R13), R13	// next
	JMP	step
failed:
	NEGQ	AX
	MOVQ	R13, 16(R12)	// header.failure.step
	MOVQ	AX, 24(R12)	// header.failure.errno
	MOVQ	88(R13), R13	// fail
	JMP	step
leave:
	POPQ	R13
	POPQ	R12
	POPQ	BX
	RET
	// The end, for whoever copies: "waldo:end".
	BYTE $0x77; BYTE $0x61; BYTE $0x6c; BYTE $0x64; BYTE $0x6f; BYTE $0x3a; BYTE $0x65; BYTE $0x6e; BYTE $0x64

DATA ·machineStart(SB)/8, $·machine(SB)
GLOBL ·machineStart(SB), RODATA, $8
