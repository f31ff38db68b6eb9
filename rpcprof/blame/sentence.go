package blame

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rpcprof/toolkit/rpcprof/profile"
)

// sentence says a verdict in words.
func (j *judge) sentence(v *Verdict, m *profile.Method) string {
	reason := phrase(v.Cause, v.Culprit, v.Location)
	for i, l := range v.Chain {
		link := ", which are "
		if i > 0 {
			link = ", those "
		}
		reason += link + phrase(l.Cause, l.Culprit, l.Location)
	}
	name := v.Method
	if m.Side == "client" {
		name = "calls to " + name
	}
	if v.Cause == string(profile.Unknown) {
		reason = "for a cause that is not seen from inside the process"
	}
	if elsewhere(m.Side, v.Stage) {
		reason = "which is not in this process"
	}
	if v.Kind == Level {
		s := fmt.Sprintf("%s: every call (p50 %s) loses %s in %s: %s (%.0f %% of a typical call)",
			name, Duration(m.P50NS), Duration(v.ExcessNS), v.Stage, reason, 100*v.Share)
		return s + j.full()
	}
	return fmt.Sprintf("%s p99 %s (p50 %s): +%s in %s, %s (%.0f %% of what its slow calls lose)",
		name, Duration(m.P99NS), Duration(m.P50NS), Duration(v.ExcessNS), v.Stage, reason, 100*v.Share)
}

// full names a thread that is used up, while others are not, though it is needed for
// calls. It adds to a level verdict and is none of its own: a busy thread that no
// call waits for is no fault.
func (j *judge) full() string {
	w := j.p.Window.EndNS - j.p.Window.StartNS
	if w <= 0 || len(j.p.Threads) < 2 {
		return ""
	}
	busy := func(t profile.Thread) float64 { return float64(t.CPUUserNS+t.CPUKernelNS) / float64(w) }
	ts := slices.SortedStableFunc(slices.Values(j.p.Threads), func(a, b profile.Thread) int { return cmp.Compare(busy(b), busy(a)) })
	t := ts[0]
	if !slices.Contains([]string{"reader", "writer", "worker"}, t.Role) || busy(t) < 0.95 || busy(ts[1]) > 0.8 {
		return ""
	}
	return fmt.Sprintf("; thread %d (%s) is %.1f %% busy while the others have room", t.TID, t.Role, 100*busy(t))
}

// phrase says what a cause means, and where.
func phrase(cause, culprit, location string) string {
	where := ""
	if location != "" {
		where = " at " + location
	}
	by := func(with, without string) string {
		if culprit == "" {
			return without
		}
		return fmt.Sprintf(with, culprit)
	}
	switch profile.Cause(cause) {
	case profile.CPUUser:
		return "running user code" + where
	case profile.CPUKernel:
		return "in system calls" + where
	case profile.RunQueue:
		return by("runnable, but %s had the CPU", "runnable, waiting for a CPU")
	case profile.IRQ, profile.SoftIRQ:
		return by("interrupted by %s ("+cause+")", "interrupted")
	case profile.BlockDisk:
		return "blocked on disk" + where
	case profile.BlockFault:
		return "blocked in a page fault" + where
	case profile.BlockLock:
		return "blocked on a lock in the kernel" + where
	case profile.BlockNet:
		return "blocked on a socket" + where
	case profile.BlockSleep:
		return "asleep in the kernel" + where
	case profile.GoLock:
		return "waiting for a lock" + where + " (holder not seen)"
	case profile.GoChan:
		return "waiting on a channel" + where
	case profile.GoNet:
		return "waiting for the network" + where
	case profile.GoSleep:
		return "asleep" + where
	case profile.GoGC:
		return "helping or waiting for the garbage collector" + where
	case profile.GoSched:
		return "runnable, but no P ran its goroutine"
	case profile.Behind:
		return by("behind %s calls", "behind other calls")
	case profile.Unknown: // only in a chain
		return "busy with what was not seen"
	}
	return by(cause+" in %s", cause) + where
}

// Duration writes nanoseconds with three digits and a unit.
func Duration(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", ns)
	case d < time.Millisecond:
		return digits(float64(ns)/1e3, "µs")
	case d < time.Second:
		return digits(float64(ns)/1e6, "ms")
	}
	return digits(float64(ns)/1e9, "s")
}

func digits(v float64, unit string) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.2f %s", v, unit)
	case v < 100:
		return fmt.Sprintf("%.1f %s", v, unit)
	}
	return fmt.Sprintf("%.0f %s", v, unit)
}
