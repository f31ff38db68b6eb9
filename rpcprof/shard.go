package rpcprof

import (
	"sync/atomic"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// cacheSize is how many free calls a P keeps for itself; half of it moves to or
// from the common pool at once.
const cacheSize = 64

// shard is what one P owns: a ring of finished calls, histograms, and free calls.
// The goroutine that uses it is pinned to its P meanwhile, so plain loads and
// stores do; readers elsewhere order themselves by the ring's head.
type shard struct {
	segment.Shard
	lock  atomic.Uint32 // of the shared shard, and of all under the race detector
	mask  uint64
	id    int
	base  uint64   // of the ids of its calls
	seq   uint64   // how many it has given out
	keep  []keeper // by method
	nfree int
	free  [cacheSize]*Call
	_     [64]byte
}

// pin takes the shard of the current P. It gives nil when the shared shard is
// busy, which can only be where GOMAXPROCS was raised after New.
func (p *Profiler) pin() *shard {
	if id := procPin(); id < p.own {
		return &p.shards[id]
	} else {
		return p.pinShared(id)
	}
}

// pinShared takes the shard that those without one of their own share, and under
// the race detector any.
func (p *Profiler) pinShared(id int) *shard {
	s := &p.shards[min(id, len(p.shards)-1)]
	for range 1000 {
		if s.lock.CompareAndSwap(0, 1) {
			return s
		}
	}
	procUnpin()
	return nil
}

func (p *Profiler) unpin(s *shard) {
	if s.id >= p.own {
		s.lock.Store(0)
	}
	procUnpin()
}

// newID gives a call's id, which no other call of the process has.
func (s *shard) newID() uint64 {
	s.seq++
	return s.base | s.seq&(1<<44-1)
}

// last is the last stage's end, by side.
var last = [segment.Sides]int{
	segment.Server: int(segment.Sent), segment.Client: int(segment.Returned),
	segment.Region: int(segment.Ended), segment.Task: int(segment.Ended),
}

// record appends a finished call, with its stamps and outcome, to the ring and the
// histograms. The head is stored last: a record at or beyond it is never read, and
// one that the writer may have come round to is discarded by the reader.
//
// The record is copied first and what was stored a moment ago is stored again: a
// load that is wider than a store before it waits until that has left the processor.
func (s *shard) record(r *segment.Record, stamps *[segment.Stamps]int64, o Outcome, side uint8) {
	head := s.Head.Head
	to := &s.Ring[head&s.mask]
	*to = *r
	to.Seq, to.Outcome = head+1, o
	h := s.Hists(r.Method)
	t0, t1, t2, t3, t4, t5 := stamps[0], stamps[1], stamps[2], stamps[3], stamps[4], stamps[5]
	wall, at := t5-t0, t5
	// A stamp that was not taken is 0, and so earlier than the one before it.
	if (t1-t0)|(t2-t1)|(t3-t2)|(t4-t3)|(t5-t4) >= 0 && side == uint8(segment.Server) {
		to.Stamps = [segment.Stamps]int64{t0, t1, t2, t3, t4, t5}
		add(&h[0], t1-t0)
		add(&h[1], t2-t1)
		add(&h[2], t3-t2)
		add(&h[3], t4-t3)
		add(&h[4], t5-t4)
	} else {
		wall, at = uneven(to, h, stamps, last[side&3])
	}
	add(&h[segment.HistTotal], wall)
	if side == uint8(segment.Client) {
		if st, ok := to.ServerTiming(); ok {
			add(&h[segment.HistServer], st.Total())
		}
	}
	mark64(&s.Head.Head, head+1) // the next record, over the oldest, comes after it
	if k := &s.keep[r.Method]; wall > k.least || at >= k.until {
		s.keepSlow(k, r.Method, to, wall, at)
	}
	if o != OK {
		s.keepFailed(to)
	}
}

// uneven counts the stages of a call that lacks stamps, or whose stamps do not follow
// each other, or that has others than a server's. It gives what the call took, and
// its end.
func uneven(to *segment.Record, h *[segment.HistsPerMethod]segment.Histogram, stamps *[segment.Stamps]int64, last int) (wall, at int64) {
	at = stamps[0]
	to.Stamps = [segment.Stamps]int64{at}
	for i := 1; i <= last; i++ {
		t := stamps[i]
		if t == 0 {
			continue
		}
		// A shared stamp may be a little older than the one before it.
		t = max(t, at)
		to.Stamps[i] = t
		// A stage is counted only where both its stamps were taken.
		if stamps[i-1] != 0 {
			add(&h[i-1], t-at)
		}
		at = t
	}
	return at - stamps[0], at
}

// add counts a duration. Snapshot reads histograms while they change.
func add(h *segment.Histogram, ns int64) {
	store64(&h[0], h[0]+uint64(ns))
	n := &h[(1+segment.BucketFor(ns))&(segment.HistogramWords-1)] // the mask spares a check
	store64(n, *n+1)
}

// take gives a free call: the P's own, else from the pool. It gives nil when
// there is none with a slot.
func (p *Profiler) take(s *shard) *Call {
	if s.nfree == 0 {
		for c := p.free.pop(p); c != nil; {
			next := c.next
			c.next = nil
			s.free[s.nfree] = c
			s.nfree++
			c = next
		}
	}
	if s.nfree > 0 {
		s.nfree--
		return s.free[s.nfree]
	}
	return nil
}

// giveMore returns a call for which the P's cache has no room: half of that goes to
// the pool. Calls without a slot are kept apart, so that those with one are preferred.
func (p *Profiler) giveMore(s *shard, c *Call) {
	if c.number >= p.callSlots {
		p.extra.push(c)
		return
	}
	if s.nfree == cacheSize {
		var chain *Call
		for range cacheSize / 2 {
			s.nfree--
			d := s.free[s.nfree]
			d.next, chain = chain, d
		}
		p.free.push(chain)
	}
	s.free[s.nfree] = c
	s.nfree++
}
