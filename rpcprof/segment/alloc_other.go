//go:build !linux

package segment

import "fmt"

type memory struct {
	mem       []byte
	fd        int
	closeFile func()
	unmap     func()
}

func allocate(size int) (memory, error) {
	return memory{make([]byte, size), -1, func() {}, func() {}}, fmt.Errorf("%w: memfd needs Linux", ErrHeap)
}
