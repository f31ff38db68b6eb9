package profile

import (
	"testing"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// reading gives a runtime's counts after so many seconds in which everything is
// constant: a cycle, two pauses of 50 µs, 1000 objects of 64 bytes, 500 switches each second.
func reading(second int64) segment.RuntimeSample {
	n := uint64(second)
	return segment.RuntimeSample{
		Seq: n + 1, AtNS: second * 1e9, GCCycles: n, GCPauses: 2 * n, GCPauseNS: 100_000 * n, GCAssistNS: 7 * n, GCMarkNS: 9 * n,
		AllocObjects: 1000 * n, AllocBytes: 64000 * n, HeapBytes: 1 << 20, Goroutines: 12, Switches: 500 * n,
	}
}

func TestRuntimeOf(t *testing.T) {
	var samples []segment.RuntimeSample
	for s := int64(1); s <= 10; s++ {
		samples = append(samples, reading(s))
	}
	var ends []int64
	for at := int64(0); at < 11e9; at += 10e6 { // a hundred calls a second
		ends = append(ends, at)
	}
	within := func(w Window) (out []int64) {
		for _, at := range ends {
			if at >= w.StartNS && at <= w.EndNS {
				out = append(out, at)
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		w       Window
		seconds int64
	}{
		"two readings and more in it":    {Window{2.5e9, 7.5e9}, 4},
		"readings at its very ends":      {Window{3e9, 6e9}, 3},
		"one in it, and one before":      {Window{4.5e9, 5.5e9}, 1},
		"longer than all that was taken": {Window{0, 11e9}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			r := RuntimeOf(samples, c.w, within(c.w), 3*int64(len(within(c.w))))
			if r == nil {
				t.Fatal("no runtime")
			}
			if r.WindowNS != c.seconds*1e9 || r.GCCycles != c.seconds || r.GCPauses != 2*c.seconds || r.GCPauseNS != 100_000*c.seconds ||
				r.GCAssistNS != 7*c.seconds || r.GCMarkNS != 9*c.seconds || r.HeapBytes != 1<<20 || r.Goroutines != 12 {
				t.Errorf("%+v, want the differences of %d s", r, c.seconds)
			}
			near := func(got, want float64) bool { return got > 0.97*want && got < 1.03*want }
			if !near(r.AllocObjectsPerCall, 10) || !near(r.AllocBytesPerCall, 640) || !near(r.GoroutineSwitchesPerCall, 5) || r.OSSwitchesPerCall != 3 {
				t.Errorf("%+v, want 10 objects of 640 bytes, 5 switches of goroutines and 3 of threads a call", r)
			}
		})
	}
	for name, w := range map[string]Window{"before the first": {0, 0.5e9}, "one alone": {0.5e9, 1.5e9}, "between two": {4.2e9, 4.8e9}} {
		if r := RuntimeOf(samples, w, ends, 1); r != nil {
			t.Errorf("%s: %+v from fewer than two readings", name, r)
		}
	}
	// A damaged count is none, and no calls are no division by zero.
	bad := []segment.RuntimeSample{reading(5), reading(6)}
	bad[1].GCCycles, bad[1].AllocBytes = 0, ^uint64(0)
	if r := RuntimeOf(bad, Window{4e9, 7e9}, nil, 1); r == nil || r.GCCycles != 0 || r.AllocBytesPerCall != 0 || r.OSSwitchesPerCall != 0 {
		t.Errorf("%+v", r)
	}
}
