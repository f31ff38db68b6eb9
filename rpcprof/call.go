package rpcprof

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Stamp is one instant in a call.
type Stamp uint8

// The stamps, in the order they are taken. Begin takes the first of a server's
// call, Recv. BeginClient takes the first of a client's, and End its last.
const (
	Recv    Stamp = iota // server: the request's frame is complete in user memory
	Dequeue              // server: a worker takes the request
	Handler              // server: user code starts
	Handled              // server: user code returned
	Write                // the request's or reply's bytes enter the write to the socket
	Sent                 // that write returned

	Acquired // client: the caller has a connection; between BeginClient and Encoded
	Encoded  // client: the request is encoded and waits for the writer; before Write
	Received // client: the reply's frame is complete in user memory; after Sent
	Woken    // client: the caller runs again
	stamps
)

// none marks a stamp that a side does not have.
const none = 0xff

// place is where a record has each stamp, by side.
var place = [2][stamps]uint8{
	segment.Server: {0, 1, 2, 3, 4, 5, none, none, none, none},
	segment.Client: {
		Recv: none, Dequeue: none, Handler: none, Handled: none,
		Acquired: uint8(segment.Acquired), Encoded: uint8(segment.Encoded), Write: uint8(segment.ClientWrite),
		Sent: uint8(segment.ClientSent), Received: uint8(segment.Received), Woken: uint8(segment.Woken),
	},
}

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
		at = Now()
	}
	c := p.acquire()
	if c == nil {
		atomic.AddUint64(&p.seg.Header.LostCalls, 1)
		return nil
	}
	r, s := &c.rec, c.slot
	c.live, c.side = true, uint8(m.side)
	id := r.Call
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

// acquire gives a free call with its new id, nil where there is none.
func (p *Profiler) acquire() *Call {
	for {
		s := p.pin()
		if s == nil {
			return nil
		}
		c := p.take(s)
		if c == nil && uint32(p.nchunks.Load())*chunkSize >= p.callSlots {
			if c = p.extra.pop(p); c != nil {
				atomic.AddUint64(&p.seg.Header.NoSlot, 1)
			}
		}
		if c != nil {
			s.Head.Seq++
			c.rec.Call = segment.CallID(p.number, s.id, s.Head.Seq)
		}
		p.unpin(s)
		if c != nil || !p.grow() {
			return c
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
	p, s := c.p, c.slot
	if c.g != 0 { // started before, and handed on
		c.unbind()
	}
	if at <= 0 {
		at = Now()
	}
	s.Stamps[segment.Dequeue] = at
	s.Stage = segment.StageDecode
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

// unbind ends what bind began.
func (c *Call) unbind() {
	g := c.g
	store64(&c.slot.G, 0)
	if c.entry != nil {
		c.p.unbind(c.entry, binding{uint64(g), c.rec.Goid, c.number}, c.prev, c.slot.Worker)
		c.entry = nil
	}
	c.g = 0
}

// Stamp takes a stamp now. One that the call's side does not have is ignored.
func (c *Call) Stamp(s Stamp) {
	if c == nil {
		return
	}
	c.stamp(s, 0)
}

// StampAt takes a stamp at a time that was read already: where two instants are
// one, they share it. 0 is now.
func (c *Call) StampAt(s Stamp, at int64) {
	if c == nil {
		return
	}
	c.stamp(s, at)
}

func (c *Call) stamp(s Stamp, at int64) {
	if !c.live || s >= stamps || c.side > uint8(segment.Client) {
		return
	}
	i := place[c.side&1][s]
	if i == none {
		return
	}
	if at <= 0 {
		at = Now()
	}
	c.slot.Stamps[i&7] = at
	// The stage that begins at a stamp has the stamp's number plus one.
	if s != Sent || c.side == uint8(segment.Client) {
		c.slot.Stage = segment.Stage(i) + 1
	}
	switch s {
	case Write:
		c.rec.WriteTID = c.p.off.tid(getg())
	case Received:
		c.rec.RecvTID = c.p.off.tid(getg())
	}
}

// Release says that the worker is free again, at 0 now, and unbinds the call from
// its goroutine. End does it where it was not done.
func (c *Call) Release(at int64) {
	if c == nil || c.g == 0 {
		return
	}
	c.release(at)
}

func (c *Call) release(at int64) {
	if !c.live || c.side != uint8(segment.Server) {
		return
	}
	if c.cpu != 0 {
		c.endCPU()
	}
	if at <= 0 {
		at = Now()
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
	if c.g != 0 {
		if c.side == uint8(segment.Server) {
			c.release(c.lastStamp())
		} else {
			c.unbind()
		}
	}
	if o == segment.Unfinished || o >= segment.Outcomes {
		o = Error
	}
	c.rec.Outcome = o
	c.lastly(o)
	c.live = false
	closed := p.closed.Load()
	s := p.pin()
	if s == nil {
		if !closed {
			atomic.AddUint64(&p.seg.Header.LostCalls, 1)
		}
		c.leave()
		p.extraOrFree(c)
		return
	}
	if !closed {
		c.rec.Stamps = c.slot.Stamps
		s.record(&c.rec, c.side)
	}
	c.leave()
	p.give(s, c)
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
