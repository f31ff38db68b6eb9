package profile

import (
	"slices"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Finished gives the ends of the calls that the process's CPU time is divided by:
// those it served, or, where it serves none, those it made.
func (e *Evidence) Finished() []int64 {
	var ends [segment.Client + 1][]int64
	for i := range e.Calls {
		if c := &e.Calls[i]; c.Outcome != segment.Unfinished && c.Side <= segment.Client {
			ends[c.Side] = append(ends[c.Side], slices.Max(c.Stamps[:]))
		}
	}
	if len(ends[segment.Server]) > 0 {
		return ends[segment.Server]
	}
	return ends[segment.Client]
}

// roleCounts are how often calls name a thread in each role.
type roleCounts struct{ reader, worker, writer int }

// role is the one they name it in most.
func (n roleCounts) role() string {
	switch most := max(n.reader, n.worker, n.writer); {
	case most == 0:
		return "runtime"
	case n.worker == most:
		return segment.KindWorker.String()
	case n.reader == most:
		return segment.KindReader.String()
	}
	return segment.KindWriter.String()
}

// SetThreads fills in what threads used in the window, busiest first, and from that
// what a call takes of the CPUs. A thread has the role in which calls have named it
// most. One that no call names may yet have a role of its own, of which idle tells;
// goroutines are on whatever thread they were put on last.
func (p *Profile) SetThreads(threads []Thread, e *Evidence, idle map[uint32]segment.Kind) {
	by := map[uint32]*roleCounts{}
	at := func(tid uint32) *roleCounts {
		if by[tid] == nil {
			by[tid] = &roleCounts{}
		}
		return by[tid]
	}
	for i := range e.Calls {
		t := e.Calls[i].TIDs
		at(t[0]).reader++
		at(t[1]).worker++
		at(t[2]).writer++
	}
	p.Threads = threads
	var user, kernel, top2 int64
	for i := range p.Threads {
		th := &p.Threads[i]
		n := at(uint32(th.TID))
		th.Role, th.Calls = n.role(), n.worker
		if k := idle[uint32(th.TID)]; *n == (roleCounts{}) && k != segment.KindFree {
			th.Role = k.String()
		}
		user, kernel = user+th.CPUUserNS, kernel+th.CPUKernelNS
		if i < 2 {
			top2 += th.CPUUserNS + th.CPUKernelNS
		}
	}
	all := user + kernel
	if w := p.Window.EndNS - p.Window.StartNS; w > 0 {
		p.CPU.BusyCores = float64(all) / float64(w)
	}
	if all > 0 {
		p.CPU.Top2Share = float64(top2) / float64(all)
	}
	if n := int64(len(e.Finished())); n > 0 {
		p.CPU.UserNSPerCall, p.CPU.KernelNSPerCall = user/n, kernel/n
	}
}
