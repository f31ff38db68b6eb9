package rpcprof

import (
	"sync/atomic"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Queue is where calls wait for a worker.
type Queue struct {
	p  *Profiler
	id uint32
	n  atomic.Int32
}

// Queue makes a queue. Its workers are the roles made by its Worker method.
func (p *Profiler) Queue() *Queue {
	if p == nil || p.seg == nil {
		return nil
	}
	return &Queue{p: p, id: p.queues.Add(1)}
}

// Worker makes the calling goroutine a worker of the queue until the Role is closed.
func (q *Queue) Worker() *Role {
	if q == nil || q.p == nil {
		return nil
	}
	r := q.p.role(segment.KindWorker, 0, q.id)
	if r != nil {
		r.workers = &q.n
		q.n.Add(1)
	}
	return r
}

// Role is a goroutine that serves many calls: a connection's reader or writer,
// or a queue's worker. What delays it is charged to the calls that wait for it.
// A Role belongs to the goroutine that made it.
type Role struct {
	p       *Profiler
	slot    *segment.Slot
	index   uint32
	entry   *segment.IndexEntry
	prev    uint32 // the slot that was bound there before
	g       uintptr
	goid    uint64
	queue   uint32
	workers *atomic.Int32
}

const noSlot = ^uint32(0)

func (p *Profiler) role(k segment.Kind, conn, queue uint32) *Role {
	p.mu.Lock()
	closed := p.closed.Load()
	if len(p.roles) == 0 || closed {
		p.mu.Unlock()
		if !closed {
			atomic.AddUint64(&p.seg.Header.NoRole, 1)
		}
		return nil
	}
	i := p.roles[len(p.roles)-1]
	p.roles = p.roles[:len(p.roles)-1]
	p.mu.Unlock()

	r := &Role{p: p, slot: &p.seg.Slots[i], index: i, queue: queue}
	s := r.slot
	g := getg()
	r.g, r.goid = uintptr(g), p.off.goid(g)
	s.TID, s.Conn, s.Queue, s.Worker, s.Stamps[0] = p.off.tid(g), conn, queue, i, Now()
	s.Kind = k
	store64(&s.Goid, r.goid)
	store64(&s.G, uint64(r.g))
	raise(&p.seg.Header.RoleHigh, i+1)
	r.entry, r.prev = p.bind(r.g, i)
	return r
}

// Close ends the role. It is called on the goroutine that made it, before that
// ends. Close on a role that has ended does nothing.
func (r *Role) Close() {
	if r == nil || r.slot == nil {
		return
	}
	store64(&r.slot.G, 0)
	r.slot.Kind = segment.KindFree
	if r.entry != nil {
		r.p.unbind(r.entry, binding{uint64(r.g), r.goid, r.index}, r.prev, noSlot)
		r.entry = nil
	}
	if r.workers != nil {
		r.workers.Add(-1)
	}
	r.p.mu.Lock()
	r.p.roles = append(r.p.roles, r.index)
	r.p.mu.Unlock()
	r.slot = nil
}

// bind makes the index lead from a goroutine to a slot. It gives the entry, nil
// when the bucket is full, and the slot it led to before, or noSlot.
func (p *Profiler) bind(g uintptr, slot uint32) (*segment.IndexEntry, uint32) {
	a := uint64(g)
	if a == 0 {
		return nil, noSlot
	}
	b := &p.seg.Index[segment.BucketOf(a, p.seg.IndexBits)]
	for i := range b {
		if e := &b[i]; atomic.LoadUint64(&e.G) == a {
			prev := atomic.LoadUint32(&e.Slot)
			store32(&e.Slot, slot)
			return e, prev
		}
	}
	for i := range b {
		if e := &b[i]; atomic.LoadUint64(&e.G) == 0 && atomic.CompareAndSwapUint64(&e.G, 0, a) {
			store32(&e.Slot, slot)
			return e, noSlot
		}
	}
	atomic.AddUint64(&p.seg.Header.NoIdx, 1)
	return nil, noSlot
}

// bindFree is bind for a goroutine that is not in the index.
func (p *Profiler) bindFree(g uintptr, slot uint32) (*segment.IndexEntry, uint32) {
	b := &p.seg.Index[segment.BucketOf(uint64(g), p.seg.IndexBits)]
	for i := range b {
		if atomic.LoadUint64(&b[i].G) == uint64(g) {
			return nil, noSlot
		}
	}
	return p.bind(g, slot)
}

// binding is a goroutine that the index leads to a slot.
type binding struct {
	g, goid uint64
	slot    uint32
}

// unbind takes a binding back and restores the one before it, where that still
// holds, else the worker's; otherwise the goroutine leaves the index. What was
// bound over it meanwhile stays.
func (p *Profiler) unbind(e *segment.IndexEntry, b binding, prev, worker uint32) {
	if atomic.LoadUint64(&e.G) != b.g || atomic.LoadUint32(&e.Slot) != b.slot {
		return
	}
	if !p.runs(prev, b) {
		prev = worker
		if !p.runs(prev, b) {
			store64(&e.G, 0)
			return
		}
	}
	store32(&e.Slot, prev)
}

// runs says whether a slot is another one of the same goroutine.
func (p *Profiler) runs(slot uint32, b binding) bool {
	if slot >= uint32(len(p.seg.Slots)) || slot == b.slot {
		return false
	}
	s := &p.seg.Slots[slot]
	return atomic.LoadUint64(&s.G) == b.g && atomic.LoadUint64(&s.Goid) == b.goid
}
