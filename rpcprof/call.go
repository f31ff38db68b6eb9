package rpcprof

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Outcome says how a call ended.
type Outcome = segment.Outcome

// The outcomes of a call. One that has not ended is unfinished.
const (
	OK        = segment.OK
	Error     = segment.Error
	Cancelled = segment.Cancelled
	Expired   = segment.Expired // its deadline passed
	Shed      = segment.Shed    // refused at a limit
)

// Call is one call, served or made. It belongs to one goroutine at a time and must
// not be used after End.
type Call struct {
	p     *Profiler
	slot  *segment.Slot
	rec   segment.Record      // all but the stamps, which are in the slot until the end
	g     uintptr             // the goroutine that runs it, 0 none
	entry *segment.IndexEntry // where that one is bound, nil when it is not
	prev  uint32              // the slot that was bound there before
	live  bool
	side  uint8 // segment.Server or Client; a task's is above
	left  uint8 // how often the goroutine had left its thread when cpu was read
	cpu   int64 // the thread's CPU time at Start, 0 where it is not measured

	number uint32
	next   *Call         // in a chain of free calls
	below  atomic.Uint32 // number+1 of the chain under this one in the pool
}

// Begin starts a call that is served. recv is when its request was complete, by
// Now; requests cut from one read share that time; 0 is now. conn may be nil. It
// gives nil, which is safe to use, when the call cannot be recorded; that is
// counted until Close.
func (p *Profiler) Begin(m *Method, conn *Conn, recv int64) *Call {
	if p == nil || p.seg == nil {
		return nil
	}
	return p.begin(m, conn, recv, 0)
}

func (p *Profiler) begin(m *Method, conn *Conn, at int64, parent uint64) *Call {
	if p.closed.Load() {
		return nil
	}
	if m == nil || m.p != p {
		atomic.AddUint64(&p.seg.Header.LostCalls, 1)
		return nil
	}
	if at <= 0 {
		if at = tscNow(); at == 0 {
			at = slowNow()
		}
	}
	c, id := p.acquire()
	if c == nil {
		atomic.AddUint64(&p.seg.Header.LostCalls, 1)
		return nil
	}
	r, s := &c.rec, c.slot
	c.live, c.side = true, uint8(m.side)
	*r = segment.Record{}
	r.Call, r.Parent, r.Method, r.Offset, r.RecvTID = id, parent, m.id, segment.NoOffset, p.off.tid(getg())
	s.Method, s.Parent = m.id, parent
	s.Conn, s.Worker, s.Queue, s.TID = 0, 0, 0, 0
	store32(&s.Region, 0) // a late Region of the slot's last call may be at it
	if conn != nil && conn.p == p {
		r.Conn, s.Conn = conn.id, conn.id
	}
	s.Stamps = [segment.Stamps]int64{at}
	s.Stage = 1
	s.Kind = segment.KindCall
	store64(&s.Call, id)
	return c
}

// acquire gives a free call and its id, nil where there is none.
func (p *Profiler) acquire() (*Call, uint64) {
	if n := procPin(); n < p.own {
		s := &p.shards[n]
		if i := s.nfree - 1; uint(i) < cacheSize {
			s.nfree = i
			c, id := s.free[i], s.newID()
			procUnpin()
			return c, id
		}
	}
	procUnpin()
	return p.acquireMore()
}

// acquireMore is acquire where the P has no free call, or no shard of its own.
func (p *Profiler) acquireMore() (*Call, uint64) {
	for {
		s := p.pin()
		if s == nil {
			return nil, 0
		}
		c := p.take(s)
		if c == nil && uint32(p.nchunks.Load())*chunkSize >= p.callSlots {
			if c = p.extra.pop(p); c != nil {
				atomic.AddUint64(&p.seg.Header.NoSlot, 1)
			}
		}
		id := s.newID()
		p.unpin(s)
		if c != nil || !p.grow() {
			return c, id
		}
	}
}

// Request describes the request: its size in bytes, where its first byte stands
// in all that the connection has received (below TLS; negative when unknown),
// the number of the read it was cut from, its position there (from 0) and how
// many were cut from that read.
func (c *Call) Request(size int, offset int64, read uint32, pos, of int) {
	if c == nil {
		return
	}
	c.request(size, offset, read, pos, of)
}

func (c *Call) request(size int, offset int64, read uint32, pos, of int) {
	if !c.live {
		return
	}
	c.rec.BytesIn = bytes32(size)
	if offset >= 0 && c.side == uint8(segment.Server) {
		c.rec.Offset = uint64(offset)
	}
	of = min(max(of, 0), 1<<16-1)
	c.rec.Batch, c.rec.BatchPos, c.rec.BatchSize = read, uint16(min(max(pos, 0), of)), uint16(of)
}

func bytes32(n int) uint32 { return uint32(min(max(int64(n), 0), 1<<32-1)) }

// Enqueue says which queue the call waits in.
func (c *Call) Enqueue(q *Queue) {
	if c == nil || !c.live || q == nil || q.p != c.p || c.side != uint8(segment.Server) {
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

// Reply gives the reply's size in bytes.
func (c *Call) Reply(size int) {
	if c != nil && c.live {
		c.rec.BytesOut = bytes32(size)
	}
}

// Timing is what the caller is told of a served call, to be sent along in the
// reply: it is all zero where nothing is known. It is taken once Write is stamped;
// before, the encode stage ends now.
func (c *Call) Timing() (b [24]byte) {
	if c == nil || !c.live || c.side != uint8(segment.Server) {
		return b
	}
	t := c.slot.Stamps
	for i := segment.Dequeue; i <= segment.Write; i++ {
		switch {
		case t[i] == 0 && i == segment.Write:
			t[i] = max(Now(), t[i-1])
		case t[i] == 0, t[i] < t[i-1]:
			t[i] = t[i-1]
		}
	}
	binary.LittleEndian.PutUint64(b[:], c.rec.Call)
	for i := range 4 {
		steps := min((t[i+1]-t[i])/segment.TimingUnit, 1<<32-1)
		binary.LittleEndian.PutUint32(b[8+4*i:], uint32(steps))
	}
	return b
}
