package rpcprof

import (
	"sync/atomic"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// pool is a lock-free stack of chains of free calls. Calls are named by their
// number, and a count in the upper half of the head makes every head different,
// so that a chain which was popped and pushed meanwhile is noticed.
type pool struct {
	head atomic.Uint64 // count<<32 | number of the chain's first call + 1
}

func (q *pool) push(chain *Call) {
	for {
		old := q.head.Load()
		chain.below.Store(uint32(old))
		if q.head.CompareAndSwap(old, (old>>32+1)<<32|uint64(chain.number+1)) {
			return
		}
	}
}

// pop gives a chain, or nil when there is none.
func (q *pool) pop(p *Profiler) *Call {
	for {
		old := q.head.Load()
		if uint32(old) == 0 {
			return nil
		}
		c := p.call(uint32(old) - 1)
		if q.head.CompareAndSwap(old, (old>>32+1)<<32|uint64(c.below.Load())) {
			return c
		}
	}
}

// Calls are made in chunks as the service first needs them and kept for ever.
const (
	chunkSize = cacheSize / 2
	maxChunks = 1 << 15 // 1,048,576 calls in flight
)

type chunk struct {
	calls [chunkSize]Call
	slots []segment.Slot // private ones, for calls beyond the segment's slots
}

func (p *Profiler) call(number uint32) *Call {
	return &p.chunks[number/chunkSize].Load().calls[number%chunkSize]
}

// grow makes another chunk of calls and puts it into the pool. It allocates, so
// it must not run pinned. It gives false at the limit.
func (p *Profiler) grow() bool {
	n := p.nchunks.Add(1) - 1
	if n >= maxChunks {
		p.nchunks.Add(-1)
		return false
	}
	k := new(chunk)
	first := uint32(n) * chunkSize
	inSegment := first < p.callSlots // callSlots is a multiple of chunkSize
	if !inSegment {
		k.slots = make([]segment.Slot, chunkSize)
	}
	for i := range k.calls {
		c := &k.calls[i]
		c.p, c.number = p, first+uint32(i)
		if inSegment {
			c.slot = &p.seg.Slots[c.number]
		} else {
			c.slot = &k.slots[i]
		}
		if i+1 < chunkSize && inSegment {
			c.next = &k.calls[i+1]
		}
	}
	p.chunks[n].Store(k)
	if inSegment {
		raise(&p.seg.Header.CallHigh, first+chunkSize)
		p.free.push(&k.calls[0])
		return true
	}
	for i := range k.calls {
		p.extra.push(&k.calls[i])
	}
	return true
}

// raise sets *v to n unless it is higher already.
func raise(v *uint32, n uint32) {
	for {
		old := atomic.LoadUint32(v)
		if old >= n || atomic.CompareAndSwapUint32(v, old, n) {
			return
		}
	}
}
