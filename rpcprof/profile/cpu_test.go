package profile

import (
	"testing"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// A method's CPU time a call is the mean over the calls it was measured of, and no other.
func TestCPUPerCall(t *testing.T) {
	e := &Evidence{Window: Window{0, 1e9}, Methods: []string{"Measured", "Unmeasured"}}
	for i := range 100 {
		at := int64(1e6 * (i + 1))
		c := Call{ID: uint64(i + 1), Outcome: segment.OK, Offset: segment.NoOffset}
		c.Stamps[segment.Recv], c.Stamps[segment.Dequeue] = at, at+1000
		switch {
		case i >= 80:
			c.Method = 1
		case i%16 == 0: // 0, 16, 32, 48, 64: their mean is 32 µs more than 10
			c.ThreadCPU = 10_000 + 1000*int64(i)
		}
		e.Calls = append(e.Calls, c)
	}
	e.Calls = append(e.Calls, Call{ID: 1000, Outcome: segment.Unfinished, ThreadCPU: 1e9, Stamps: [segment.Stamps]int64{1e6}})
	p := Join(e, Options{})
	if m := p.Methods[0]; m.CPUSamples != 5 || m.CPUPerCallNS != 42_000 {
		t.Errorf("%d ns of %d calls, want 42000 of 5", m.CPUPerCallNS, m.CPUSamples)
	}
	if m := p.Methods[1]; m.CPUSamples != 0 || m.CPUPerCallNS != 0 {
		t.Errorf("%d ns of %d calls, want none", m.CPUPerCallNS, m.CPUSamples)
	}
}
