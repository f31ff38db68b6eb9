//go:build amd64 || arm64

package rpcprof

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The CPU time of one call in 256 is measured, from Start to Release: reading the
// thread's clock takes some 0.3 to 0.8 µs, twice.
const cpuEveryBits = 8

func cpuEvery() uint32 { return 1 << cpuEveryBits }

// threadCPU gives the CPU time of the calling thread in nanoseconds. It goes past
// the scheduler: a system call that it knows of would be a reason to leave.
func threadCPU() int64 {
	var ts unix.Timespec
	if _, _, e := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&ts)), 0); e != 0 {
		return 0
	}
	return ts.Nano()
}

// startCPU begins to measure the call's CPU time, where it can be known whether
// the goroutine left its thread meanwhile.
func (c *Call) startCPU() {
	if o := c.p.off; o != nil && o.gLeft != 0 {
		c.left = o.left(getg())
		c.cpu = threadCPU()
	}
}

// endCPU ends it. What another thread ran, or this one for others, does not count:
// then there is no measurement.
func (c *Call) endCPU() {
	began := c.cpu
	c.cpu = 0
	g, o := getg(), c.p.off
	if uintptr(g) != c.g || o.tid(g) != c.rec.HandlerTID || o.left(g) != c.left {
		return
	}
	if d := threadCPU() - began; d > 0 {
		c.rec.ThreadCPU = d
	}
}
