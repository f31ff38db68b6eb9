package rpcprof

import (
	"sync/atomic"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Stamp is one instant in a call.
type Stamp = segment.Stamp

// The stamps of the server side, in the order they are taken.
const (
	Recv    = segment.Recv    // the request's frame is complete in user memory
	Dequeue = segment.Dequeue // a worker takes the request
	Handler = segment.Handler // user code starts
	Handled = segment.Handled // user code returned
	Write   = segment.Write   // the reply's bytes enter the write to the socket
	Sent    = segment.Sent    // that write returned
)

// Outcome says how a call ended.
type Outcome = segment.Outcome

// The outcomes of a call.
const (
	OK        = segment.OK
	Error     = segment.Error
	Cancelled = segment.Cancelled
	Expired   = segment.Expired // its deadline passed
	Shed      = segment.Shed    // refused at a limit
)

// Call is one call being served. It belongs to one goroutine at a time and must
// not be used after End.
type Call struct {
	p     *Profiler
	slot  *segment.Slot
	rec   segment.Record
	g     uintptr             // the goroutine that runs it, 0 none
	entry *segment.IndexEntry // where that one is bound, nil when it is not
	prev  uint32              // the slot that was bound there before
	live  bool

	number uint32
	next   *Call         // in a chain of free calls
	below  atomic.Uint32 // number+1 of the chain under this one in the pool
}

// Begin starts a call whose request was complete at the given time; requests cut
// from one read share that time. conn may be nil. It gives nil, which is safe to
// use, when the call cannot be recorded; that is counted until Close.
func (p *Profiler) Begin(m *Method, conn *Conn, recv int64) *Call {
	if p == nil || p.seg == nil || p.closed.Load() {
		return nil
	}
	if m == nil || m.p != p {
		atomic.AddUint64(&p.seg.Header.LostCalls, 1)
		return nil
	}
	if recv <= 0 {
		recv = Now()
	}
	var c *Call
	var id uint64
	for {
		s := p.pin()
		if s == nil {
			break
		}
		c = p.take(s)
		if c == nil && uint32(p.nchunks.Load())*chunkSize >= p.callSlots {
			if c = p.extra.pop(p); c != nil {
				atomic.AddUint64(&p.seg.Header.NoSlot, 1)
			}
		}
		if c != nil {
			s.Head.Seq++
			id = segment.CallID(s.id, s.Head.Seq)
		}
		p.unpin(s)
		if c != nil || !p.grow() {
			break
		}
	}
	if c == nil {
		atomic.AddUint64(&p.seg.Header.LostCalls, 1)
		return nil
	}
	c.live = true
	r, s := &c.rec, c.slot
	*r = segment.Record{}
	r.Call, r.Method, r.Offset, r.RecvTID = id, m.id, segment.NoOffset, p.off.tid(getg())
	s.Method, s.Stage, s.StageStart = m.id, segment.StageQueue, recv
	s.Conn = 0
	if conn != nil && conn.p == p {
		r.Conn, s.Conn = conn.id, conn.id
	}
	r.Stamps[Recv] = recv
	s.Stamps = [segment.Stamps]int64{}
	s.Stamps[Recv] = recv
	s.Worker, s.Queue, s.TID, s.Parent = 0, 0, 0, 0
	s.Kind = segment.KindCall
	store64(&s.Call, id)
	return c
}

// Request describes the request: its size in bytes, where its first byte stands
// in all that the connection has received (below TLS; negative when unknown),
// the number of the read it was cut from, its position there (from 0) and how
// many were cut from that read.
func (c *Call) Request(size int, offset int64, read uint32, pos, of int) {
	if c == nil || !c.live {
		return
	}
	c.rec.BytesIn = bytes32(size)
	if offset >= 0 {
		c.rec.Offset = uint64(offset)
	}
	of = min(max(of, 0), 1<<16-1)
	c.rec.Batch, c.rec.BatchPos, c.rec.BatchSize = read, uint16(min(max(pos, 0), of)), uint16(of)
}

func bytes32(n int) uint32 { return uint32(min(max(int64(n), 0), 1<<32-1)) }

// Enqueue says which queue the call waits in.
func (c *Call) Enqueue(q *Queue) {
	if c == nil || !c.live || q == nil || q.p != c.p {
		return
	}
	c.rec.Queue, c.slot.Queue = q.id, q.id
}

// Trace sets the ids of the trace the call belongs to.
func (c *Call) Trace(trace [16]byte, span [8]byte) {
	if c != nil && c.live {
		c.rec.TraceID, c.rec.SpanID = trace, span
	}
}

// Start takes the dequeue stamp and binds the call to the calling goroutine,
// whose role is given where it has one. A call that the goroutine was serving
// already is taken up again at Release.
func (c *Call) Start(r *Role, at int64) {
	if c == nil || !c.live {
		return
	}
	p, s := c.p, c.slot
	if c.g != 0 { // started before, and handed on
		c.unbind()
	}
	c.StampAt(Dequeue, at)
	if r != nil && (r.slot == nil || r.p != p) {
		r = nil
	}
	if r != nil {
		s.Worker, c.rec.Worker = r.index, r.index
		if r.workers != nil {
			c.rec.Workers = uint16(min(r.workers.Load(), 1<<16-1))
			s.Queue, c.rec.Queue = r.queue, r.queue
		}
	}
	g := getg()
	c.g = uintptr(g)
	goid, tid := p.off.goid(g), p.off.tid(g)
	c.rec.Goid, c.rec.HandlerTID = goid, tid
	store64(&s.Goid, goid)
	s.TID = tid
	store64(&s.G, uint64(c.g))
	if c.number >= p.callSlots {
		return
	}
	if r != nil && r.g == c.g && r.entry != nil && atomic.LoadUint64(&r.entry.G) == uint64(c.g) {
		c.entry, c.prev = r.entry, atomic.LoadUint32(&r.entry.Slot)
		store32(&r.entry.Slot, c.number)
		return
	}
	c.entry, c.prev = p.bind(c.g, c.number)
}

// unbind ends what Start began.
func (c *Call) unbind() {
	g := c.g
	store64(&c.slot.G, 0)
	if c.entry != nil {
		c.p.unbind(c.entry, binding{uint64(g), c.rec.Goid, c.number}, c.prev, c.slot.Worker)
		c.entry = nil
	}
	c.g = 0
}

// Stamp takes a stamp now.
func (c *Call) Stamp(s Stamp) {
	if c != nil {
		c.StampAt(s, Now())
	}
}

// StampAt takes a stamp at a time that was read already: where two instants are
// one, they share it.
func (c *Call) StampAt(s Stamp, at int64) {
	if c == nil || !c.live || s >= segment.Stamps || at <= 0 {
		return
	}
	c.rec.Stamps[s] = at
	c.slot.Stamps[s] = at
	if s == Write {
		c.rec.WriteTID = c.p.off.tid(getg())
	}
	if s < Sent {
		// The stage that begins at a stamp has the stamp's number plus one.
		c.slot.Stage = segment.Stage(s) + 1
		c.slot.StageStart = at
	}
}

// Release says that the worker is free again, and unbinds the call from its
// goroutine. End does it where it was not done.
func (c *Call) Release(at int64) {
	if c == nil || !c.live || c.g == 0 {
		return
	}
	c.rec.Release = at
	c.unbind()
}

// Reply gives the reply's size in bytes.
func (c *Call) Reply(size int) {
	if c != nil && c.live {
		c.rec.BytesOut = bytes32(size)
	}
}

// End finishes the call: it is recorded and its slot is free. End on a call that
// has ended does nothing.
func (c *Call) End(o Outcome) {
	if c == nil || !c.live {
		return
	}
	if c.g != 0 {
		c.Release(c.lastStamp())
	}
	p := c.p
	c.live = false
	if o >= segment.Outcomes {
		o = Error
	}
	c.rec.Outcome = o
	c.slot.Kind = segment.KindFree
	store64(&c.slot.Call, 0)
	closed := p.closed.Load()
	s := p.pin()
	if s == nil {
		if !closed {
			atomic.AddUint64(&p.seg.Header.LostCalls, 1)
		}
		p.extraOrFree(c)
		return
	}
	if !closed {
		s.record(c)
	}
	p.give(s, c)
	p.unpin(s)
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
		if t := c.rec.Stamps[i-1]; t != 0 {
			return t
		}
	}
	return 0
}
