package profile

import (
	"slices"
	"testing"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Three messages of one read, served one after the other by the reader: each waits
// for those before it, and for nothing else. What waits for a call of another read
// does not wait for mates.
func TestBatchMates(t *testing.T) {
	e := &Evidence{Window: Window{1, 1000 * ms}, Methods: []string{"A"}}
	add := func(id uint64, recv, dequeue, took int64, batch uint32, pos, of uint16) {
		e.Calls = append(e.Calls, Call{
			ID: id, Outcome: segment.OK, Conn: 1, Worker: 7, Batch: batch, BatchPos: pos, BatchOf: of, Offset: segment.NoOffset, Release: dequeue + took,
			Stamps: [segment.Stamps]int64{recv, dequeue, dequeue, dequeue + took, dequeue + took, dequeue + took},
		})
	}
	add(1, 10*ms, 12*ms, 5*ms, 1, 0, 3) // 2 ms behind something else
	add(2, 10*ms, 17*ms, 3*ms, 1, 1, 3)
	add(3, 10*ms, 20*ms, 1*ms, 1, 2, 3)
	p := Join(e, Options{})
	if want := []int64{2 * ms, 7 * ms, 10 * ms}; !slices.Equal(p.Batch.WaitByPositionNS, want) {
		t.Errorf("waits %v, not %v", p.Batch.WaitByPositionNS, want)
	}
	if want := []int64{0, 5 * ms, 8 * ms}; !slices.Equal(p.Batch.MatesWaitNS, want) {
		t.Errorf("for mates %v, not %v", p.Batch.MatesWaitNS, want)
	}
	if p.Batch.MessagesPerRead != 3 {
		t.Errorf("%v messages a read", p.Batch.MessagesPerRead)
	}
	e.Calls = nil
	add(4, 10*ms, 10*ms, 9*ms, 2, 0, 1)
	add(5, 11*ms, 19*ms, 1*ms, 3, 0, 1)
	if p := Join(e, Options{}); !slices.Equal(p.Batch.MatesWaitNS, []int64{0}) {
		t.Errorf("calls that came alone waited %v for mates", p.Batch.MatesWaitNS)
	}
}
