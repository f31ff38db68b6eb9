package rpcprof

import (
	"sync/atomic"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Start takes the dequeue stamp, at 0 now, and binds the call to the calling
// goroutine, whose role is given where it has one. A call that the goroutine was
// serving already is taken up again at Release.
func (c *Call) Start(r *Role, at int64) {
	if c == nil {
		return
	}
	c.start(r, at)
}

func (c *Call) start(r *Role, at int64) {
	if !c.live || c.side != uint8(segment.Server) {
		return
	}
	if c.g != 0 { // started before, and handed on
		c.unbind()
	}
	if at <= 0 {
		if at = tscNow(); at == 0 {
			at = slowNow()
		}
	}
	s := c.slot
	c.rec.Release = 0
	s.Stamps[segment.Dequeue] = at
	s.Stage = segment.StageDecode
	if r != nil && (r.slot == nil || r.p != c.p) {
		r = nil
	}
	if r != nil {
		s.Worker, c.rec.Worker = r.index, r.index
		if r.workers != nil {
			c.rec.Workers = uint16(min(r.workers.Load(), 1<<16-1))
			s.Queue, c.rec.Queue = r.queue, r.queue
		}
	}
	c.bind(r)
	// Which calls are measured must not depend on the order they come in.
	if (c.rec.Call*0x9E3779B97F4A7C15)>>(64-cpuEveryBits) == 0 {
		c.startCPU()
	}
}

// bind makes the calling goroutine the one that runs the call.
func (c *Call) bind(r *Role) {
	p, s, g := c.p, c.slot, getg()
	c.g = uintptr(g)
	if o := p.off; o != nil {
		goid, tid := o.goid(g), o.tid(g)
		c.rec.Goid, c.rec.HandlerTID = goid, tid
		s.TID = tid
		store64(&s.Goid, goid)
	}
	store64(&s.G, uint64(c.g))
	switch {
	case c.number >= p.callSlots:
	case r != nil && r.g == c.g && r.entry != nil && atomic.LoadUint64(&r.entry.G) == uint64(c.g):
		c.entry, c.prev = r.entry, atomic.LoadUint32(&r.entry.Slot)
		store32(&r.entry.Slot, c.number)
	default:
		c.entry, c.prev = p.bind(c.g, c.number)
	}
}

// unbind ends what bind began.
func (c *Call) unbind() {
	g := c.g
	store64(&c.slot.G, 0)
	if e := c.entry; e != nil && c.prev == c.slot.Worker && uintptr(getg()) == g &&
		atomic.LoadUint64(&e.G) == uint64(g) && atomic.LoadUint32(&e.Slot) == c.number {
		// The worker itself, which cannot have ended its role meanwhile.
		store32(&e.Slot, c.prev)
		c.entry = nil
	} else if e != nil {
		c.p.unbind(c.entry, binding{uint64(g), c.rec.Goid, c.number}, c.prev, c.slot.Worker)
		c.entry = nil
	}
	c.g = 0
}

// Release says that the worker is free again, at 0 now, and unbinds the call from
// its goroutine. End does it where it was not done.
func (c *Call) Release(at int64) {
	if c == nil {
		return
	}
	c.release(at)
}

func (c *Call) release(at int64) {
	if !c.live || c.rec.Release != 0 || c.slot.Stamps[segment.Dequeue] == 0 || c.side != uint8(segment.Server) {
		return
	}
	if c.cpu != 0 {
		c.endCPU()
	}
	if at <= 0 {
		at = Now()
	}
	c.rec.Release = at
	if c.g != 0 {
		c.unbind()
	}
}
