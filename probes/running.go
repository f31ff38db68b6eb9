package probes

import (
	"cmp"
	"slices"

	"github.com/rpcprof/toolkit/rpcprof/profile"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// wait is one time in which a thread was off the CPU, and the intervals made of it,
// Evidence.Intervals[first:last].
type wait struct {
	start, end  int64
	first, last int
}

// boundCall is a call that ran on one thread alone from one time to another.
type boundCall struct {
	call      uint64
	tid       uint32
	from, to  int64
	unsettled bool // it still does, so what the thread does last may be unseen
}

// ownThreads gives the times in which calls of a service on threads had theirs: from
// dequeue until it was free again, where that is known, else until the handler
// returned; of those in flight, until the end of the window if they still have it.
// A caller's part is not among them: what thread it waits on is not in its record.
func (c *Capture) ownThreads(e *profile.Evidence, calls []profile.Call, slots []segment.SlotState, out []boundCall) []boundCall {
	still := map[uint64]uint32{}
	for i := range slots {
		if sl := &slots[i]; sl.Kind == segment.KindCall && sl.G != 0 {
			still[sl.Call] = c.threads.Global(uint32(sl.G))
		}
	}
	for i := range calls {
		call := &calls[i]
		call.Goid = 0
		if call.Side != segment.Server {
			continue
		}
		b := boundCall{call: call.ID, tid: call.TIDs[1], from: call.Stamps[segment.Dequeue], to: call.Release}
		switch {
		case call.Outcome == segment.Unfinished:
			b.tid, b.to, b.unsettled = still[call.ID], e.Window.EndNS, true
		case b.to == 0:
			b.to = call.Stamps[segment.Handled]
		}
		if b.tid != 0 && b.from != 0 && b.to > b.from {
			out = append(out, b)
		}
	}
	return out
}

// addRunning explains what no wait of its thread does of a call that has a thread
// of its own: between two switches that thread ran. So running is exact. Whether it
// ran in the kernel is not seen without an event a system call, which would cost all
// processes; /proc has the thread's ticks in either over the window, and those
// divide it. A call made within another has the other's thread, and what holds it up
// is charged to both.
func (c *Capture) addRunning(e *profile.Evidence, bound []boundCall, waits map[uint32][]wait) {
	if c.kern == nil || len(bound) == 0 {
		return
	}
	if lost := c.kern.counter(lostEvents) + c.kern.dropped; lost > 0 {
		c.limit("%d kernel events are lost, so when the calls that have a thread of their own ran is not known", lost)
		return
	}
	c.limit("calls that have a thread of their own: for how long they ran is exact, but its division into user and kernel is that of the thread over the window")
	for _, ws := range waits {
		slices.SortFunc(ws, func(a, b wait) int { return cmp.Compare(a.start, b.start) })
	}
	user := sharesOf(c.threads)
	for _, b := range bound {
		if b.from < e.Window.StartNS || b.unsettled && !c.kern.pendingKnown {
			continue
		}
		own := profile.Owner{Call: b.call, Kind: segment.KindCall}
		ran := func(from, to int64) {
			split := from + int64(user.of(b.tid)*float64(to-from))
			if split > from {
				e.Intervals = append(e.Intervals, profile.Interval{Owner: own, Start: from, End: split, Cause: profile.CPUUser, Stack: -1})
			}
			if to > split {
				e.Intervals = append(e.Intervals, profile.Interval{Owner: own, Start: split, End: to, Cause: profile.CPUKernel, Stack: -1})
			}
		}
		ws := waits[b.tid]
		// A thread's waits do not overlap, so they are in order of their ends too.
		i, _ := slices.BinarySearchFunc(ws, b.from, func(w wait, t int64) int { return cmp.Or(cmp.Compare(w.end, t), -1) })
		at := b.from
		for ; i < len(ws) && ws[i].start < b.to; i++ {
			w := ws[i]
			if w.start > at {
				ran(at, w.start)
			}
			for _, iv := range e.Intervals[w.first:w.last] {
				if iv.Call != b.call {
					iv.Owner = own
					e.Intervals = append(e.Intervals, iv)
				}
			}
			at = max(at, w.end)
		}
		if at < b.to {
			ran(at, b.to)
		}
	}
}
