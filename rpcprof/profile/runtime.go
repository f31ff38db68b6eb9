package profile

import "github.com/rpcprof/toolkit/rpcprof/segment"

// Runtime is what the Go runtime did between two of its own readings, which are a
// second apart: nearly the window. What is per call divides by the calls that
// finished between them, and is 0 where none did.
type Runtime struct {
	WindowNS  int64 `json:"window_ns"` // between the readings
	Calls     int64 `json:"calls"`     // that finished between them
	GCCycles  int64 `json:"gc_cycles"`
	GCPauses  int64 `json:"gc_pauses"`
	GCPauseNS int64 `json:"gc_pause_ns"` // of a histogram: within its buckets
	// GCAssistNS is CPU time of goroutines made to help, GCMarkNS of the collector's workers.
	GCAssistNS          int64   `json:"gc_assist_ns"`
	GCMarkNS            int64   `json:"gc_mark_ns"`
	AllocObjectsPerCall float64 `json:"alloc_objects_per_call"`
	AllocBytesPerCall   float64 `json:"alloc_bytes_per_call"`
	HeapBytes           int64   `json:"heap_bytes"` // at the later reading
	Goroutines          int64   `json:"goroutines"`
	// GoroutineSwitchesPerCall is estimated from those the runtime samples.
	GoroutineSwitchesPerCall float64 `json:"goroutine_switches_per_call"`
	// OSSwitchesPerCall is of all threads, over the whole window and its calls.
	OSSwitchesPerCall float64 `json:"os_switches_per_call"`
}

// RuntimeOf compares the first reading in the window with the last one in it. Of a
// window too short to have two it takes the last one before it: the calls of the time
// before the window are not known, so as many are assumed a second as in it. ends are
// when calls finished; osSwitches is how often the kernel switched the process's
// threads in the window. It gives nil where there are not two readings.
func RuntimeOf(samples []segment.RuntimeSample, w Window, ends []int64, osSwitches int64) *Runtime {
	var before, first, last *segment.RuntimeSample
	for i := range samples {
		switch s := &samples[i]; {
		case s.AtNS < w.StartNS:
			before = s
		case s.AtNS > w.EndNS:
		case first == nil:
			first, last = s, s
		default:
			last = s
		}
	}
	a, b := first, last
	if first == last {
		a = before
	}
	if a == nil || b == nil || b.AtNS <= a.AtNS {
		return nil
	}
	var between, all int64
	from := max(a.AtNS, w.StartNS)
	for _, t := range ends {
		if t > from && t <= b.AtNS {
			between++
		}
		if t >= w.StartNS && t <= w.EndNS {
			all++
		}
	}
	if from > a.AtNS && b.AtNS > from {
		between = int64(float64(between) * float64(b.AtNS-a.AtNS) / float64(b.AtNS-from))
	}
	r := &Runtime{
		WindowNS: b.AtNS - a.AtNS, Calls: between,
		GCCycles: since(a.GCCycles, b.GCCycles), GCPauses: since(a.GCPauses, b.GCPauses), GCPauseNS: since(a.GCPauseNS, b.GCPauseNS),
		GCAssistNS: since(a.GCAssistNS, b.GCAssistNS), GCMarkNS: since(a.GCMarkNS, b.GCMarkNS),
		HeapBytes: since(0, b.HeapBytes), Goroutines: since(0, b.Goroutines),
	}
	if between > 0 {
		n := float64(between)
		r.AllocObjectsPerCall = float64(since(a.AllocObjects, b.AllocObjects)) / n
		r.AllocBytesPerCall = float64(since(a.AllocBytes, b.AllocBytes)) / n
		r.GoroutineSwitchesPerCall = float64(since(a.Switches, b.Switches)) / n
	}
	if all > 0 {
		r.OSSwitchesPerCall = float64(osSwitches) / float64(all)
	}
	return r
}

// since is how far a count that only grows has come. The counts are foreign: one that
// went back, or is beyond all measure, says nothing.
func since(a, b uint64) int64 {
	if b < a || b-a > 1<<62 {
		return 0
	}
	return int64(b - a)
}
