package segment

import (
	"fmt"

	"golang.org/x/sys/unix"
)

type memory struct {
	mem       []byte
	fd        int    // the memfd, or -1
	closeFile func() // takes the name away; the mapping stays
	unmap     func()
}

// allocate makes a sealed memfd of the given size and maps it. Only the pages
// that are touched take memory. Where no memfd can be had it falls back to
// anonymous memory, with an error that wraps ErrHeap.
func allocate(size int) (memory, error) {
	mem, fd, err := memfd(FileName, size)
	if err == nil {
		return memory{mem, fd, func() { _ = unix.Close(fd) }, func() { _ = unix.Munmap(mem) }}, nil
	}
	err = fmt.Errorf("%w: memfd: %w", ErrHeap, err)
	mem, anonErr := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if anonErr == nil {
		return memory{mem, -1, func() {}, func() { _ = unix.Munmap(mem) }}, err
	}
	return memory{make([]byte, size), -1, func() {}, func() {}}, err
}

// memfd makes a file of a fixed size and maps it.
func memfd(name string, size int) ([]byte, int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, -1, err
	}
	fail := func(err error) ([]byte, int, error) { _ = unix.Close(fd); return nil, -1, err }
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return fail(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, Seals); err != nil {
		return fail(err)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fail(err)
	}
	return mem, fd, nil
}

// Seals are what a segment carries: its size is final.
const Seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
