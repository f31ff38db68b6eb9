package rpcprof

import (
	"context"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Span is a region that has begun. The zero Span is one that is not recorded.
type Span struct {
	call  *Call
	id    uint64 // of the call
	name  *Method
	start int64
	outer uint32 // the region around it
}

// Region begins a named part of a handler; its End ends it:
//
//	defer rpcprof.Region(ctx, "db").End()
//
// It belongs to the call that the context carries, else to the one that the
// calling goroutine serves, and is nothing where there is none. Regions may nest.
// Names are bounded, to a quarter of the methods; those beyond are "_other".
func Region(ctx context.Context, name string) Span {
	c, id, side := find(ctx)
	if c == nil || side != uint8(segment.Server) {
		return Span{}
	}
	s := Span{call: c, id: id, name: c.p.region(name), start: Now()}
	if s.name == nil {
		return Span{}
	}
	s.outer = atomic.LoadUint32(&c.slot.Region)
	atomic.StoreUint32(&c.slot.Region, s.name.id+1)
	return s
}

// End ends the region.
func (s Span) End() {
	if s.call == nil || s.call.p.closed.Load() {
		return
	}
	p, slot := s.call.p, s.call.slot
	if atomic.LoadUint64(&slot.Call) == s.id {
		atomic.StoreUint32(&slot.Region, s.outer)
	}
	r := segment.Record{
		Parent: s.id, Method: s.name.id, Offset: segment.NoOffset,
		Stamps: [segment.Stamps]int64{s.start, Now()},
	}
	g := getg()
	r.Goid, r.HandlerTID = p.off.goid(g), p.off.tid(g)
	sh := p.pin()
	if sh == nil {
		atomic.AddUint64(&p.seg.Header.LostCalls, 1)
		return
	}
	r.Call = sh.newID()
	sh.record(&r, &r.Stamps, OK, uint8(segment.Region))
	p.unpin(sh)
}

// Go starts f on a goroutine of its own that belongs to the call of the context,
// or to the one that the calling goroutine serves: what it does is shown under that
// call's handler, by the function's name. Without a call it is go f().
func Go(ctx context.Context, f func()) {
	c, id, _ := find(ctx)
	if c == nil || f == nil {
		go f()
		return
	}
	p := c.p
	t := p.begin(p.task(f), nil, 0, id)
	go func() {
		if t != nil {
			t.bind(nil)
			defer t.End(OK)
		}
		f()
	}()
}

// names are looked up without a lock, and added by replacing the whole.
type names[K comparable] struct {
	m atomic.Pointer[map[K]*Method]
}

func (n *names[K]) get(k K) *Method {
	if m := n.m.Load(); m != nil {
		return (*m)[k]
	}
	return nil
}

// put adds a name; the Profiler's lock is held.
func (n *names[K]) put(k K, m *Method) {
	grown := map[K]*Method{k: m}
	if old := n.m.Load(); old != nil {
		for k, m := range *old {
			grown[k] = m
		}
	}
	n.m.Store(&grown)
}

func (n *names[K]) len() int {
	if m := n.m.Load(); m != nil {
		return len(*m)
	}
	return 0
}

// region gives the entry of a region's name.
func (p *Profiler) region(name string) *Method {
	if m := p.regions.get(name); m != nil {
		return m
	}
	name = string([]byte(name)) // a copy, so that the caller's need not escape
	return enter(p, &p.regions, name, name, segment.Region, p.otherRegion)
}

// task gives the entry of a function that Go starts.
func (p *Profiler) task(f func()) *Method {
	pc := **(**uintptr)(unsafe.Pointer(&f)) // a func is a pointer to its closure, which begins with the code's address
	if m := p.tasks.get(pc); m != nil {
		return m
	}
	name := "func"
	if fn := runtime.FuncForPC(pc); fn != nil {
		name = fn.Name()
	}
	return enter(p, &p.tasks, pc, name, segment.Task, p.otherTask)
}

// enter adds a name to those that are looked up by k; beyond a quarter of the methods
// it is other.
func enter[K comparable](p *Profiler, to *names[K], k K, name string, side segment.Side, other *Method) *Method {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := to.get(k); m != nil {
		return m // another was quicker
	}
	if to.len() >= max(1, len(p.seg.Methods)/4) {
		return other
	}
	m := p.add(name, side)
	if m == nil {
		return other
	}
	to.put(k, m)
	return m
}
