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

// boundTo adds the time in which a finished call of a service on threads had its
// thread: from dequeue until that was free again, where that is known, else until
// the handler returned.
func boundTo(c *profile.Call, out []boundCall) []boundCall {
	from, to := c.Stamps[segment.Dequeue], c.Release
	if to == 0 {
		to = c.Stamps[segment.Handled]
	}
	if c.TIDs[1] == 0 || from == 0 || to <= from {
		return out
	}
	return append(out, boundCall{c.ID, c.TIDs[1], from, to, false})
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
	user := c.threads.userShares()
	for _, b := range bound {
		if b.from < e.Window.StartNS || b.unsettled && !c.kern.pendingKnown {
			continue
		}
		own := profile.Owner{Call: b.call, Kind: segment.KindCall}
		ran := func(from, to int64) {
			split := from + int64(user.of(b.tid)*float64(to-from))
			e.Intervals = append(e.Intervals,
				profile.Interval{Owner: own, Start: from, End: split, Cause: profile.CPUUser, Stack: -1},
				profile.Interval{Owner: own, Start: split, End: to, Cause: profile.CPUKernel, Stack: -1})
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
