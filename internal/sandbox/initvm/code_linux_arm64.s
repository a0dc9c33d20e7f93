#include "textflag.h"

// The machine walks steps (steps.go). It is never called here: its bytes are copied into an
// executable of their own, or into a zygote, which calls them as a C function. R19: the header at
// dataBase; R20: the step at hand.
TEXT ·machine(SB),NOSPLIT|NOFRAME,$0-0
	STP.W	(R19, R20), -32(RSP)	// the callee's to keep (AAPCS64)
	STP	(R21, R22), 16(RSP)
	MOVD	$0x70200000, R19
	MOVD	0(R19), R20	// header.entry
step:
	MOVD	0(R20), R8	// nr
	CMN	$1, R8		// leave
	BEQ	leave
	MOVD	8(R20), R0	// args
	MOVD	16(R20), R1
	MOVD	24(R20), R2
	MOVD	32(R20), R3
	MOVD	40(R20), R4
	MOVD	48(R20), R5
	SVC
	CMN	$4095, R0
	BCS	failed
	MOVD	56(R20), R21	// store
	CBZ	R21, stored
	MOVD	R0, (R21)
stored:
	MOVD	64(R20), R21	// equal
	CBZ	R21, next
	MOVD	(R21), R22
	CMP	R22, R0
	BNE	next
	MOVD	72(R20), R20	// same
	B	step
next:
	MOVD	80(R20), R20	// next
	B	step
failed:
	NEG	R0, R0
	MOVD	R20, 16(R19)	// header.failure.step
	MOVD	R0, 24(R19)	// header.failure.errno
	MOVD	88(R20), R20	// fail
	B	step
leave:
	LDP	16(RSP), (R21, R22)
	LDP.P	32(RSP), (R19, R20)
	RET
	// The end, for whoever copies: "waldo:end" and three zeros.
	WORD	$0x646c6177
	WORD	$0x6e653a6f
	WORD	$0x00000064

DATA ·machineStart(SB)/8, $·machine(SB)
GLOBL ·machineStart(SB), RODATA, $8
