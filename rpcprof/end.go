package rpcprof

import (
	"sync/atomic"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// End finishes the call: it is recorded and its slot is free. A client's call gets
// its last stamp. End on a call that has ended does nothing.
//
// A call that did not end well may lack stamps; the stage it was in then ends now,
// and its record says so.
func (c *Call) End(o Outcome) {
	if c == nil || !c.live {
		return
	}
	c.end(o)
}

func (c *Call) end(o Outcome) {
	p := c.p
	switch {
	case c.side != uint8(segment.Server):
		if c.g != 0 {
			c.unbind()
		}
	case c.rec.Release == 0:
		c.release(c.lastStamp())
	}
	if o != OK || c.side != uint8(segment.Server) {
		if o == segment.Unfinished || o >= segment.Outcomes {
			o = Error
		}
		c.lastly(o)
	}
	c.live = false
	s := p.pin()
	if s == nil {
		if !p.closed.Load() {
			atomic.AddUint64(&p.seg.Header.LostCalls, 1)
		}
		c.leave()
		p.extraOrFree(c)
		return
	}
	if !p.closed.Load() {
		s.record(&c.rec, &c.slot.Stamps, o, c.side)
	}
	c.leave()
	if i := s.nfree; c.number < p.callSlots && uint(i) < cacheSize {
		s.free[i] = c
		s.nfree = i + 1
	} else {
		p.giveMore(s, c)
	}
	p.unpin(s)
}

// leave gives the slot back.
func (c *Call) leave() {
	c.slot.Kind = segment.KindFree
	store64(&c.slot.Call, 0)
}

// lastly takes the stamp that ends the call where there is one to take.
func (c *Call) lastly(o Outcome) {
	t := &c.slot.Stamps
	switch {
	case c.side == uint8(segment.Server):
		if o == OK || t[segment.Sent] != 0 {
			return
		}
		// Given up: the stage it is in ends here.
		if i := c.slot.Stage; i > 0 && i < segment.Stage(segment.ServerStamps) {
			t[i] = Now()
			c.rec.Flags |= segment.FlagCut
		}
	case c.side == uint8(segment.Client):
		if i := c.slot.Stage; o != OK && t[segment.Received] == 0 && i > 0 && i < segment.Stage(segment.ClientStamps) {
			t[i] = Now()
			c.rec.Flags |= segment.FlagCut
			return
		}
		t[segment.Returned] = Now()
	default:
		t[segment.Ended] = Now()
	}
}

// extraOrFree returns a call without a shard.
func (p *Profiler) extraOrFree(c *Call) {
	if c.number >= p.callSlots {
		p.extra.push(c)
		return
	}
	c.next = nil
	p.free.push(c)
}

func (c *Call) lastStamp() int64 {
	for i := segment.Stamps; i > 0; i-- {
		if t := c.slot.Stamps[i-1]; t != 0 {
			return t
		}
	}
	return 0
}
