package rpcprof

import (
	"context"
	"sync/atomic"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// callKey is the key under which a context has the call it belongs to.
type callKey struct{}

// callContext is a context that belongs to a call. It outlives the call, whose
// memory is used again then: the id tells.
type callContext struct {
	context.Context
	call *Call
	id   uint64
	side uint8 // of the call; its own field may be another call's by now
}

func (c *callContext) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Context gives a context that carries the call, for the handler: calls made with
// it, regions and goroutines started with Go then belong to the call. It is the one
// thing here that allocates. A handler's own goroutine is known without.
func (c *Call) Context(ctx context.Context) context.Context {
	if c == nil || !c.live {
		return ctx
	}
	return &callContext{ctx, c, c.rec.Call, c.side}
}

// find gives the call being served that a context belongs to, else the one that
// the calling goroutine serves, its id and its side; nil where there is none. It may
// be another Profiler's of the process. Nothing else of the call may be read: it can
// end at any time.
func find(ctx context.Context) (*Call, uint64, uint8) {
	if ctx != nil {
		if in, ok := ctx.Value(callKey{}).(*callContext); ok {
			if atomic.LoadUint64(&in.call.slot.Call) == in.id {
				return in.call, in.id, in.side
			}
			return nil, 0, 0 // it has ended
		}
	}
	live := profilers.Load()
	if live == nil {
		return nil, 0, 0
	}
	for _, w := range *live {
		if p := w.Value(); p != nil {
			if c, id := p.served(); c != nil {
				return c, id, c.side // bound to this goroutine, so not ended
			}
		}
	}
	return nil, 0, 0
}

// served gives the call that the calling goroutine serves.
func (p *Profiler) served() (*Call, uint64) {
	g := uint64(uintptr(getg()))
	if g == 0 || p.seg == nil || p.off == nil { // an address without an id may be a later goroutine's
		return nil, 0
	}
	b := &p.seg.Index[segment.BucketOf(g, p.seg.IndexBits)]
	for i := range b {
		if atomic.LoadUint64(&b[i].G) != g {
			continue
		}
		n := atomic.LoadUint32(&b[i].Slot)
		if n >= p.callSlots {
			return nil, 0 // a role: it serves no call now
		}
		k := p.chunks[n/chunkSize].Load()
		if k == nil {
			return nil, 0 // only one who may write the segment can have put that there
		}
		c := &k.calls[n%chunkSize]
		// The index may hold a goroutine that has died; its address lives on.
		if atomic.LoadUint64(&c.slot.G) != g || atomic.LoadUint64(&c.slot.Goid) != p.off.goid(getg()) {
			return nil, 0
		}
		if id := atomic.LoadUint64(&c.slot.Call); id != 0 {
			return c, id
		}
		return nil, 0
	}
	return nil, 0
}
