package rpcprof

import (
	"unsafe"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// offsets are places in the Go runtime's g and m, in bytes, that a profiler
// needs to find the goroutine a thread runs and what a goroutine waits for. The
// library finds them in its own process and checks each against facts it can
// know otherwise; where any is missing or ambiguous there are none at all.
type offsets struct {
	tls                 int // of g, from the thread's fs base; 0 where the architecture has none
	gM, gGoid           uint
	gStatus, gWait      uint
	schedPC, schedBP    uint
	mG0, mCurG, mProcID uint
	gLeft               uint // a byte that counts how often g left its thread; 0 unknown
}

// goid gives the id of the goroutine g, 0 when offsets are unknown.
func (o *offsets) goid(g unsafe.Pointer) uint64 {
	if o == nil {
		return 0
	}
	return *(*uint64)(unsafe.Add(g, o.gGoid))
}

// tid gives the id of the thread that runs the goroutine g, which must be the
// calling one; 0 when offsets are unknown.
func (o *offsets) tid(g unsafe.Pointer) uint32 {
	if o == nil {
		return 0
	}
	m := *(*unsafe.Pointer)(unsafe.Add(g, o.gM))
	return *(*uint32)(unsafe.Add(m, o.mProcID))
}

// left gives the count of times that the goroutine g, which must be the calling
// one, has left its thread, modulo 256.
func (o *offsets) left(g unsafe.Pointer) uint8 { return *(*uint8)(unsafe.Add(g, o.gLeft)) }

func (o *offsets) publish(h *segment.Header) {
	h.TLSOff = int32(o.tls)
	h.GM, h.GGoid = uint32(o.gM), uint32(o.gGoid)
	h.GStatus, h.GWaitReason = uint32(o.gStatus), uint32(o.gWait)
	h.GSchedPC, h.GSchedBP = uint32(o.schedPC), uint32(o.schedBP)
	h.MG0, h.MCurG, h.MProcID = uint32(o.mG0), uint32(o.mCurG), uint32(o.mProcID)
	h.Flags |= segment.FlagGoroutines
}
