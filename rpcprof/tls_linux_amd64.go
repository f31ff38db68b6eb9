package rpcprof

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// fsBase gives the calling thread's fs base.
func fsBase() uintptr {
	const archGetFS = 0x1003 // ARCH_GET_FS, arch_prctl(2)
	var fs uintptr
	if _, _, e := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archGetFS, uintptr(unsafe.Pointer(&fs)), 0); e != 0 {
		return 0
	}
	return fs
}

// tlsHolding gives the offsets below the fs base at which g stands. Go keeps it
// there (cmd/link: -8 in a static binary, elsewhere with cgo).
func tlsHolding(g uintptr) map[int]bool {
	out := map[int]bool{}
	fs := fsBase()
	if fs == 0 {
		return out
	}
	var b [8]byte
	for off := -8; off >= -512; off -= 8 {
		if look(fs+uintptr(off), b[:]) == nil && word(b[:], 0) == g {
			out[off] = true
		}
	}
	return out
}
