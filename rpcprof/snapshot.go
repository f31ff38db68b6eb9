package rpcprof

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Snapshot is what a Profiler has counted since it was made. Counts are exact;
// a duration is known within its bucket, 6.25 %.
type Snapshot struct {
	Methods []MethodSnapshot
	Lost    uint64 // calls that could not be recorded
}

// MethodSnapshot is the part of one method.
type MethodSnapshot struct {
	Method string
	Side   string // server, client, region or task
	// By stage. A server's: queue, decode, handler, encode, write. A client's:
	// acquire, encode, queue, write, wire+server, wakeup, decode; and server, which is
	// a part of wire+server, where replies told it.
	Stages map[string]Histogram
	Total  Histogram // from the first stamp to the last
}

// Histogram counts durations.
type Histogram struct {
	Count   uint64
	Sum     time.Duration
	buckets *segment.Histogram
}

// Each calls f for each bucket that holds anything, in rising order, with its
// half-open range. The last bucket is open: its bounds are equal.
func (h Histogram) Each(f func(lo, hi time.Duration, count uint64)) {
	if h.buckets == nil {
		return
	}
	for i, n := range h.buckets[1:] {
		if n > 0 {
			lo, hi := segment.BucketBounds(i)
			f(time.Duration(lo), time.Duration(hi), n)
		}
	}
}

// Snapshot reads the counts. It disturbs no call.
func (p *Profiler) Snapshot() Snapshot {
	var out Snapshot
	if p == nil || p.seg == nil {
		return out
	}
	out.Lost = atomic.LoadUint64(&p.seg.Header.LostCalls)
	n := atomic.LoadUint32(&p.seg.Header.MethodCount)
	for id := range n {
		side := p.seg.Methods[id].Side
		if side >= segment.Sides {
			continue
		}
		total := p.histogram(id, segment.HistTotal)
		if total.Count == 0 {
			continue
		}
		m := MethodSnapshot{
			Method: p.seg.Methods[id].NameString(),
			Side:   side.String(),
			Stages: map[string]Histogram{},
			Total:  total,
		}
		for s := segment.Stage(1); int(s) <= last[side] && side <= segment.Client; s++ {
			if h := p.histogram(id, int(s)-1); h.Count > 0 {
				m.Stages[segment.StageName(side, s)] = h
			}
		}
		if side == segment.Client {
			if h := p.histogram(id, segment.HistServer); h.Count > 0 {
				m.Stages["server"] = h
			}
		}
		out.Methods = append(out.Methods, m)
	}
	runtime.KeepAlive(p) // which keeps the segment mapped
	return out
}

// histogram adds up one histogram over the shards. Those of a shard that never
// recorded the method are not looked at: to read memory that was never written
// would allocate it.
func (p *Profiler) histogram(method uint32, k int) Histogram {
	sum := new(segment.Histogram)
	for i := range p.shards {
		s := &p.shards[i]
		if atomic.LoadInt64(&s.keep[method].until) == 0 {
			continue
		}
		h := &s.Hists(method)[k]
		for b := range h {
			sum[b] += atomic.LoadUint64(&h[b])
		}
	}
	out := Histogram{Sum: time.Duration(sum[0]), buckets: sum}
	for _, n := range sum[1:] {
		out.Count += n
	}
	return out
}

// Reader gives what reads p's segment within the process: finished calls, calls in
// flight, counts. It needs no privilege, works where nothing can be attached, and
// disturbs no call.
func (p *Profiler) Reader() (*segment.Reader, error) {
	if p == nil || p.seg == nil {
		return nil, errNothing
	}
	return segment.NewReader(held{p}, p.seg.Size())
}

var errNothing = errors.New("the profiler records nothing")

// held keeps the Profiler, and with it the mapping, as long as it is read.
type held struct{ p *Profiler }

func (h held) ReadAt(b []byte, off int64) (int, error) {
	n, err := h.p.seg.ReadAt(b, off)
	runtime.KeepAlive(h.p)
	return n, err
}
