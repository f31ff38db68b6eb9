package rpcprof

import (
	"sync/atomic"
	"unsafe"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Role is a goroutine that serves many calls: a connection's reader or writer,
// or a queue's worker. What delays it is charged to the calls that wait for it.
// A Role belongs to the goroutine that made it.
type Role struct {
	p       *Profiler
	slot    *segment.Slot
	index   uint32
	entry   *segment.IndexEntry
	g       unsafe.Pointer
	queue   uint32
	workers *atomic.Int32
}

const noSlot = ^uint32(0)

func (p *Profiler) role(k segment.Kind, conn, queue uint32) *Role {
	p.mu.Lock()
	if len(p.roles) == 0 || p.closed {
		p.mu.Unlock()
		atomic.AddUint64(&p.seg.Header.NoRole, 1)
		return nil
	}
	i := p.roles[len(p.roles)-1]
	p.roles = p.roles[:len(p.roles)-1]
	p.mu.Unlock()

	r := &Role{p: p, slot: &p.seg.Slots[i], index: i, queue: queue}
	s := r.slot
	r.g = getg()
	*s = segment.Slot{
		G: uint64(uintptr(r.g)), Goid: p.off.goid(r.g), TID: p.off.tid(r.g),
		Conn: conn, Queue: queue, Worker: i, StageStart: Now(),
	}
	s.Kind = k
	raise(&p.seg.Header.RoleHigh, i+1)
	r.entry, _ = p.bind(r.g, i)
	return r
}

// Close ends the role. It is called on the goroutine that made it, before that ends.
func (r *Role) Close() {
	if r == nil || r.slot == nil {
		return
	}
	r.p.unbind(r.entry, r.g, noSlot)
	r.slot.Kind, r.slot.G = segment.KindFree, 0
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
func (p *Profiler) bind(g unsafe.Pointer, slot uint32) (*segment.IndexEntry, uint32) {
	a := uint64(uintptr(g))
	if a == 0 {
		return nil, noSlot
	}
	b := &p.seg.Index[segment.BucketOf(a, p.seg.IndexBits)]
	for i := range b {
		if e := &b[i]; atomic.LoadUint64(&e.G) == a {
			prev := e.Slot
			atomic.StoreUint32(&e.Slot, slot)
			return e, prev
		}
	}
	for i := range b {
		if e := &b[i]; atomic.LoadUint64(&e.G) == 0 && atomic.CompareAndSwapUint64(&e.G, 0, a) {
			atomic.StoreUint32(&e.Slot, slot)
			return e, noSlot
		}
	}
	atomic.AddUint64(&p.seg.Header.NoIdx, 1)
	return nil, noSlot
}

// unbind takes a binding back and restores the one before it.
func (p *Profiler) unbind(e *segment.IndexEntry, g unsafe.Pointer, prev uint32) {
	if e == nil || atomic.LoadUint64(&e.G) != uint64(uintptr(g)) {
		return
	}
	if prev != noSlot {
		atomic.StoreUint32(&e.Slot, prev)
		return
	}
	atomic.StoreUint64(&e.G, 0)
}
