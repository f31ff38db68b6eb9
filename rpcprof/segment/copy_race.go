//go:build race

package segment

import "unsafe"

// copyShared copies what is being written. The race detector does not know by what
// order a Reader tells a whole copy from a torn one, and would see a race in each; built-in
// copy reports itself to it wherever it is used.
//
//go:norace
func copyShared(to, from []byte) int {
	n := min(len(to), len(from))
	if n == 0 {
		return 0
	}
	i := 0
	if (uintptr(unsafe.Pointer(&to[0]))|uintptr(unsafe.Pointer(&from[0])))%8 == 0 {
		for ; i+8 <= n; i += 8 { // words are not torn
			*(*uint64)(unsafe.Pointer(&to[i])) = *(*uint64)(unsafe.Pointer(&from[i]))
		}
	}
	for ; i < n; i++ {
		to[i] = from[i]
	}
	return n
}
