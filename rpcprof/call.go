package rpcprof

import (
	"sync/atomic"
	"unsafe"

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
	entry *segment.IndexEntry // where its goroutine is bound, nil when it is not
	g     unsafe.Pointer
	prev  uint32 // the slot that was bound there before
	live  bool

	number uint32
	next   *Call         // in a chain of free calls
	below  atomic.Uint32 // number+1 of the chain under this one in the pool
}

// Begin starts a call whose request was complete at the given time; requests cut
// from one read share that time. conn may be nil. It gives nil, which is safe to
// use, when the call cannot be recorded; that is counted.
func (p *Profiler) Begin(m *Method, conn *Conn, recv int64) *Call {
	if p == nil || p.seg == nil || m == nil {
		return nil
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
	c.rec = segment.Record{Call: id, Method: m.id, Offset: segment.NoOffset, RecvTID: p.off.tid(getg())}
	s := c.slot
	s.Method, s.Stage, s.StageStart = m.id, segment.StageQueue, recv
	if conn != nil {
		c.rec.Conn, s.Conn = conn.id, conn.id
	} else {
		s.Conn = 0
	}
	c.rec.Stamps[Recv] = recv
	s.Stamps = [segment.Stamps]int64{recv}
	s.Worker, s.Queue, s.TID, s.Parent = 0, 0, 0, 0
	s.Kind = segment.KindCall
	atomic.StoreUint64(&s.Call, id)
	return c
}

// Request describes the request: its size in bytes, where its first byte stands
// in all that the connection has received (below TLS; negative when unknown),
// the number of the read it was cut from, its position there (from 0) and how
// many were cut from that read.
func (c *Call) Request(size int, offset int64, read uint32, pos, of int) {
	if c == nil {
		return
	}
	c.rec.BytesIn = uint32(size)
	if offset >= 0 {
		c.rec.Offset = uint64(offset)
	}
	c.rec.Batch, c.rec.BatchPos, c.rec.BatchSize = read, uint16(min(pos, 1<<16-1)), uint16(min(of, 1<<16-1))
}

// Enqueue says which queue the call waits in.
func (c *Call) Enqueue(q *Queue) {
	if c == nil || q == nil {
		return
	}
	c.rec.Queue, c.slot.Queue = q.id, q.id
}

// Trace sets the ids of the trace the call belongs to.
func (c *Call) Trace(trace [16]byte, span [8]byte) {
	if c != nil {
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
	c.StampAt(Dequeue, at)
	if r != nil {
		s.Worker, c.rec.Worker = r.index, r.index
		if r.workers != nil {
			c.rec.Workers = uint16(min(r.workers.Load(), 1<<16-1))
			s.Queue, c.rec.Queue = r.queue, r.queue
		}
	}
	c.g = getg()
	s.Goid = p.off.goid(c.g)
	c.rec.Goid = s.Goid
	s.TID = p.off.tid(c.g)
	c.rec.HandlerTID = s.TID
	s.G = uint64(uintptr(c.g))
	if c.number >= p.callSlots {
		return
	}
	if r != nil && r.g == c.g && r.entry != nil {
		c.entry, c.prev = r.entry, r.entry.Slot
		atomic.StoreUint32(&r.entry.Slot, c.number)
		return
	}
	c.entry, c.prev = p.bind(c.g, c.number)
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
	if c == nil || !c.live || s >= segment.Stamps {
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
	if c == nil || !c.live || c.g == nil {
		return
	}
	c.rec.Release = at
	c.slot.G = 0
	c.p.unbind(c.entry, c.g, c.prev)
	c.entry, c.g = nil, nil
}

// Reply gives the reply's size in bytes.
func (c *Call) Reply(size int) {
	if c != nil {
		c.rec.BytesOut = uint32(size)
	}
}

// End finishes the call: it is recorded and its slot is free. End on a call that
// has ended does nothing.
func (c *Call) End(o Outcome) {
	if c == nil || !c.live {
		return
	}
	if c.g != nil {
		c.Release(c.lastStamp())
	}
	c.live = false
	c.rec.Outcome = o
	c.slot.Kind = segment.KindFree
	atomic.StoreUint64(&c.slot.Call, 0)
	s := c.p.pin()
	if s == nil {
		atomic.AddUint64(&c.p.seg.Header.LostCalls, 1)
		c.p.extraOrFree(c)
		return
	}
	s.record(c)
	c.p.give(s, c)
	c.p.unpin(s)
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
