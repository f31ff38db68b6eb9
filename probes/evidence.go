package probes

import (
	"os"
	"slices"

	"github.com/rpcprof/toolkit/probes/bpf"
	"github.com/rpcprof/toolkit/probes/symbols"
	"github.com/rpcprof/toolkit/rpcprof/profile"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// evidence turns what was collected into the join's input. bound are the calls that
// had a thread of their own.
func (c *Capture) evidence(end int64, slots [][]segment.SlotState) (e *profile.Evidence, bound []boundCall) {
	e = &profile.Evidence{Window: profile.Window{StartNS: c.start, EndNS: end}}
	bound = c.addCalls(e, slots)
	c.addSamples(e)
	waits := c.addKernel(e)
	c.addRunning(e, bound, waits)
	return e, bound
}

func (c *Capture) addSamples(e *profile.Evidence) {
	if c.samp == nil {
		return
	}
	s := c.samp
	s.mu.Lock()
	defer s.mu.Unlock()
	base := int32(len(e.Stacks))
	for _, pcs := range s.stackPCs {
		e.Stacks = append(e.Stacks, c.userStack(pcs))
	}
	for _, r := range s.samples {
		reason := ""
		if c.proc != nil {
			reason = c.proc.WaitReason(r.reason)
		}
		stack := int32(-1)
		if r.stack >= 0 {
			stack = base + r.stack
		}
		cause := goCause(r.status, reason)
		if !c.kern.followed(r.of) && (cause == profile.CPUUser || cause == profile.CPUKernel) {
			cause = profile.Unknown // its thread may as well have waited for a CPU, or in the kernel
		}
		e.Samples = append(e.Samples, profile.Sample{Owner: r.of.owner(r.owner), At: r.at, Cause: cause, Stack: stack})
	}
}

// userStack names the frames of a stack of return addresses; the first one is exact.
func (c *Capture) userStack(pcs []uint64) profile.Stack {
	if c.proc == nil {
		return nil
	}
	var out profile.Stack
	for i, pc := range pcs {
		out = append(out, c.proc.Frames(pc, i == 0)...)
	}
	return out
}

// addKernel adds what the kernel has told. It gives the times in which each thread
// was off the CPU.
func (c *Capture) addKernel(e *profile.Evidence) map[uint32][]wait {
	if c.kern == nil {
		return nil
	}
	waits := map[uint32][]wait{}
	ksyms, err := symbols.OpenKernel()
	if err != nil {
		c.limit("kernel functions have no names, so blocked time is told apart by system call only: %v", err)
	}
	type pair struct{ k, u int32 }
	type stacks struct {
		index  int32
		kernel profile.Stack
	}
	memo := map[pair]stacks{}
	stackOf := func(ev *bpf.ProgramsEvent) stacks {
		p := pair{ev.KernelStack, ev.UserStack}
		if st, ok := memo[p]; ok {
			return st
		}
		st := stacks{index: -1}
		if ksyms != nil {
			for _, pc := range c.kern.stack(p.k) {
				st.kernel = append(st.kernel, ksyms.Frame(pc))
			}
		}
		whole := append(slices.Clone(st.kernel), c.userStack(c.kern.stack(p.u))...)
		if len(whole) > 0 {
			st.index = int32(len(e.Stacks))
			e.Stacks = append(e.Stacks, whole)
		}
		memo[p] = st
		return st
	}
	lines := irqNames()
	c.kern.mu.Lock()
	events := c.kern.events
	c.kern.mu.Unlock()

	// Where the stack budget left one out, an interval is taken for what the same
	// system call in the same state mostly was where there is one.
	votes := map[waitKey]map[profile.Cause]int{}
	for i := range events {
		ev := &events[i]
		if ev.Kind != kindOffCPU || ev.Flags&flagPreempted != 0 || ev.KernelStack < 0 {
			continue
		}
		if cause := classify(ev, stackOf(ev).kernel); cause != "" {
			k := waitKey{ev.Syscall, ev.State}
			if votes[k] == nil {
				votes[k] = map[profile.Cause]int{}
			}
			votes[k][cause]++
		}
	}
	for i := range events {
		ev := &events[i]
		switch ev.Kind {
		case kindDataReady:
			e.Arrivals = append(e.Arrivals, profile.Arrival{Cookie: ev.Call, At: int64(ev.Start), Received: ev.Received})
		case kindHardIRQ, kindSoftIRQ:
			iv := profile.Interval{Owner: c.ownerOf(ev), Start: int64(ev.Start), End: int64(ev.End), Cause: profile.IRQ, Stack: -1}
			if ev.Kind == kindSoftIRQ {
				iv.Cause, iv.Culprit = profile.SoftIRQ, softirqName(uint32(ev.Vector))
			} else {
				iv.Culprit = vectorName(uint32(ev.Vector), lines)
			}
			e.Intervals = append(e.Intervals, iv)
		case kindOffCPU:
			first := len(e.Intervals)
			c.offCPU(e, ev, c.ownerOf(ev), votes, stackOf(ev).index, stackOf(ev).kernel)
			waits[ev.Tid] = append(waits[ev.Tid], wait{int64(ev.Start), int64(ev.End), first, len(e.Intervals)})
		case kindThreadExit:
			ended(c.threads, ev)
		}
	}
	return waits
}

// offCPU makes the intervals of one time off the CPU: blocked until woken, then
// on the run queue until it ran.
func (c *Capture) offCPU(e *profile.Evidence, ev *bpf.ProgramsEvent, owner profile.Owner, votes map[waitKey]map[profile.Cause]int, stack int32, kernel profile.Stack) {
	start, wake, end := int64(ev.Start), int64(ev.Wake), int64(ev.End)
	if ev.Flags&flagPreempted != 0 {
		e.Intervals = append(e.Intervals, profile.Interval{Owner: owner, Start: start, End: end, Cause: profile.RunQueue, Culprit: c.ran(ev), Stack: -1, Own: int(ev.WhoTgid) == os.Getpid()})
		return
	}
	if wake == 0 || wake > end {
		wake = end
	}
	if owner.Kind == segment.KindFree {
		// A thread that ran no call: only that it waited for a CPU is of interest.
		e.Intervals = append(e.Intervals, profile.Interval{Start: wake, End: end, Cause: profile.RunQueue, Culprit: c.ran(ev), Stack: -1, Own: int(ev.WhoTgid) == os.Getpid()})
		return
	}
	cause, culprit := classify(ev, kernel), ""
	if cause == "" {
		most := 0
		for k, n := range votes[waitKey{ev.Syscall, ev.State}] {
			if n > most || n == most && k < cause {
				cause, most = k, n
			}
		}
	}
	if cause == "" {
		cause, culprit = bySyscall(ev)
	}
	e.Intervals = append(e.Intervals,
		profile.Interval{Owner: owner, Start: start, End: wake, Cause: cause, Culprit: culprit, Stack: stack},
		profile.Interval{Owner: owner, Start: wake, End: end, Cause: profile.RunQueue, Culprit: c.ran(ev), Stack: -1, Own: int(ev.WhoTgid) == os.Getpid()})
}

// ran names who had the CPU while the thread waited for it.
func (c *Capture) ran(ev *bpf.ProgramsEvent) string {
	if ev.WhoTid == 0 {
		return ""
	}
	if int(ev.WhoTgid) == c.pid {
		return "itself: " + comm(ev.Who)
	}
	return comm(ev.Who)
}
