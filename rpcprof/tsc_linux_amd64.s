#include "textflag.h"

// func rdtsc() uint64
TEXT ·rdtsc(SB), NOSPLIT, $0-8
	RDTSC
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET

// func tscNow() int64
// What tscClock.at does, with the counter read in between: 0 where the counter may
// not be used or the anchor is too old.
TEXT ·tscNow(SB), NOSPLIT, $0-8
	CMPB  ·useTSC(SB), $0
	JEQ   none
	MOVQ  ·clock+2048(SB), CX // current
	LEAQ  ·clock(SB), BX
	MOVQ  CX, SI
	ANDQ  $63, SI
	SHLQ  $5, SI
	ADDQ  SI, BX              // the anchor
	RDTSC
	SHLQ  $32, DX
	ORQ   DX, AX
	SUBQ  0(BX), AX           // ticks since; huge where the anchor is later
	CMPQ  AX, 24(BX)
	JCC   none                // over its age
	IMULQ 16(BX), AX
	SHRQ  $32, AX
	ADDQ  8(BX), AX
	MOVQ  ·clock+2048(SB), DX
	SUBQ  CX, DX
	CMPQ  DX, $32             // anchors made meanwhile: it may be another by now
	JCC   none
	MOVQ  AX, ret+0(FP)
	RET

none:
	MOVQ $0, ret+0(FP)
	RET
