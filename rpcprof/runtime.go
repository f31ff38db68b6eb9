package rpcprof

import (
	"math"
	"runtime/metrics"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Names of package runtime/metrics, in the order they are read. A release that does
// not have one gives no value for it, and 0 is published.
const (
	metricCycles = iota
	metricPauses
	metricAssist
	metricDedicated
	metricIdle
	metricObjects
	metricBytes
	metricHeap
	metricGoroutines
	metricLatencies
	metricProcs
	metricCount
)

var metricNames = [metricCount]string{
	metricCycles:     "/gc/cycles/total:gc-cycles",
	metricPauses:     "/sched/pauses/total/gc:seconds",
	metricAssist:     "/cpu/classes/gc/mark/assist:cpu-seconds",
	metricDedicated:  "/cpu/classes/gc/mark/dedicated:cpu-seconds",
	metricIdle:       "/cpu/classes/gc/mark/idle:cpu-seconds",
	metricObjects:    "/gc/heap/allocs:objects",
	metricBytes:      "/gc/heap/allocs:bytes",
	metricHeap:       "/memory/classes/heap/objects:bytes",
	metricGoroutines: "/sched/goroutines:goroutines",
	metricLatencies:  "/sched/latencies:seconds",
	metricProcs:      "/sched/gomaxprocs:threads",
}

// tracked is which of a goroutine's ways back to running the runtime notes in
// /sched/latencies (gTrackingPeriod in its proc.go).
const tracked = 8

// runtimeReader publishes the runtime's metrics in the segment.
type runtimeReader struct {
	seg     *segment.Writer
	samples []metrics.Sample
	n       uint64
}

func newRuntimeReader(w *segment.Writer) *runtimeReader {
	r := &runtimeReader{seg: w, samples: make([]metrics.Sample, metricCount)}
	for i := range r.samples {
		r.samples[i].Name = metricNames[i]
	}
	return r
}

func (r *runtimeReader) publish() {
	if len(r.seg.Runtime) == 0 {
		return
	}
	metrics.Read(r.samples)
	at := Now()
	count := func(i int) uint64 {
		if v := r.samples[i].Value; v.Kind() == metrics.KindUint64 {
			return v.Uint64()
		}
		return 0
	}
	ns := func(i int) uint64 {
		if v := r.samples[i].Value; v.Kind() == metrics.KindFloat64 {
			return uint64(v.Float64() * 1e9)
		}
		return 0
	}
	hist := func(i int) (n, ns uint64) {
		if v := r.samples[i].Value; v.Kind() == metrics.KindFloat64Histogram {
			return sumOf(v.Float64Histogram())
		}
		return 0, 0
	}
	s := segment.RuntimeSample{
		AtNS: at, GCCycles: count(metricCycles), GCAssistNS: ns(metricAssist), GCMarkNS: ns(metricDedicated) + ns(metricIdle),
		AllocObjects: count(metricObjects), AllocBytes: count(metricBytes), HeapBytes: count(metricHeap),
		Goroutines: count(metricGoroutines), Procs: count(metricProcs),
	}
	s.GCPauses, s.GCPauseNS = hist(metricPauses)
	waits, waited := hist(metricLatencies)
	s.Switches, s.SchedWaitNS = tracked*waits, tracked*waited

	to := &r.seg.Runtime[r.n%uint64(len(r.seg.Runtime))]
	r.n++
	mark64(&to.Seq, 0)
	*to = s
	store64(&to.Seq, r.n)
}

// sumOf gives a histogram's count and its sum in nanoseconds, each value taken for
// the middle of its bucket.
func sumOf(h *metrics.Float64Histogram) (n, ns uint64) {
	for i, c := range h.Counts {
		lo, hi := h.Buckets[i], h.Buckets[i+1]
		switch {
		case math.IsInf(lo, -1):
			lo = hi
		case math.IsInf(hi, 1):
			hi = lo
		}
		n += c
		ns += uint64(float64(c) * (lo + hi) / 2 * 1e9)
	}
	return n, ns
}
