package probes

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"github.com/rpcprof/toolkit/rpcprof/profile"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// describe fills in the target, its threads and connections, and the limits.
func (c *Capture) describe(p *profile.Profile, e *profile.Evidence, bound []boundCall) {
	t := profile.Target{PID: c.pid, Comm: c.comm, Embedded: len(c.services) > 0, Privileges: "same user"}
	switch {
	case c.kern != nil && os.Geteuid() == 0:
		t.Privileges = "root"
	case c.kern != nil:
		t.Privileges = "bpf"
	}
	if c.proc != nil {
		t.Runtime = c.proc.GoVersion()
	}
	var names []string
	for _, s := range c.services {
		if n := s.name(); n != "" && !slices.Contains(names, n) {
			names = append(names, n)
		}
		if t.Runtime == "" {
			t.Runtime = printable(s.header.GoVersionString())
		}
	}
	t.Service = strings.Join(names, ", ")
	p.Targets = []profile.Target{t}
	p.SetThreads(c.threads.Threads(), e, c.idleRoles())
	byConn := map[uint32]int{}
	for i := range e.Calls {
		byConn[e.Calls[i].Conn]++
	}
	p.Connections = []profile.Connection{}
	for _, s := range c.services {
		for own, cn := range s.conns {
			id := s.numbers.Conn(own)
			if cn.Open == 0 && byConn[id] == 0 {
				continue
			}
			p.Connections = append(p.Connections, profile.Connection{ID: id, Local: cn.LocalString(), Remote: cn.RemoteString(), Open: cn.Open != 0, Calls: byConn[id]})
		}
	}
	slices.SortFunc(p.Connections, func(a, b profile.Connection) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.ID, b.ID))
	})
	c.locateInFlight(p, e, bound)
	if c.kern != nil && len(e.Calls) > 0 && !c.sawArrivals(e) {
		c.limit("recv stages are missing: no data-ready was seen on the calls' sockets (TCP only)")
	}
}

func (c *Capture) sawArrivals(e *profile.Evidence) bool { return len(e.Arrivals) > 0 }

// idleRoles are the roles of threads that have one of their own, of a service that
// runs its calls on threads.
func (c *Capture) idleRoles() map[uint32]segment.Kind {
	idle := map[uint32]segment.Kind{}
	for _, s := range c.services {
		for _, r := range s.roles {
			if s.onThreads() && r.TID != 0 {
				idle[r.TID] = r.Kind
			}
		}
	}
	return idle
}

// locateInFlight tells where the calls still in flight were last seen parked, or are
// blocked in the kernel.
func (c *Capture) locateInFlight(p *profile.Profile, e *profile.Evidence, bound []boundCall) {
	if len(p.InFlight) == 0 {
		return
	}
	last := map[uint64]int32{}
	for i := range e.Samples {
		if s := &e.Samples[i]; s.Call != 0 {
			last[s.Call] = s.Stack
		}
	}
	for i := range e.Intervals {
		if iv := &e.Intervals[i]; iv.Call != 0 && iv.End == e.Window.EndNS && iv.Stack >= 0 {
			last[iv.Call] = iv.Stack
		}
	}
	threads := map[uint64]uint32{} // of those that have one of their own
	for _, b := range bound {
		if b.unsettled {
			threads[b.call] = b.tid
		}
	}
	for i := range p.InFlight {
		f := &p.InFlight[i]
		f.TID = threads[f.Call]
		if st, ok := last[f.Call]; ok && st >= 0 {
			f.Location = profile.Location(e.Stacks[st])
		}
	}
}

// account adds what interrupts took and what was lost.
func (c *Capture) account(p *profile.Profile, e *profile.Evidence) {
	p.Interrupts = []profile.Interrupt{}
	if c.kern != nil {
		onCalls := map[[2]uint32]int64{}
		var sum int64
		for i := range c.kern.events {
			ev := &c.kern.events[i]
			v := uint32(ev.Vector)
			switch ev.Kind {
			case kindSoftIRQ:
				v += firstSoftIRQ
			case kindHardIRQ:
			default:
				continue
			}
			ns := int64(ev.End-ev.Start) - int64(ev.Wake)
			onCalls[[2]uint32{ev.Cpu, v}] += ns
			sum += ns
		}
		if n := int64(len(e.Finished())); n > 0 {
			p.CPU.IRQNSPerCall = sum / n
		}
		p.Interrupts = c.kern.interrupts(onCalls)
		slices.SortFunc(p.Interrupts, func(a, b profile.Interrupt) int {
			return cmp.Or(cmp.Compare(b.OnCallsNS, a.OnCallsNS), cmp.Compare(b.NS, a.NS), cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.Name, b.Name))
		})
		p.Lost.Events = c.kern.counter(lostEvents) + c.kern.dropped
		p.Lost.Stacks = c.kern.counter(lostStacks) + c.kern.counter(overBudget)
	}
	if c.samp != nil {
		p.Lost.Samples = c.samp.discarded.Load()
	}
	p.Lost.Calls = c.lost
	for _, s := range c.services {
		if s.seg == nil { // what it lost until then is counted
			continue
		}
		p.Lost.Calls += s.seg.Overwritten + s.seg.Torn + s.seg.Unknown
		for _, what := range s.seg.Skipped() {
			c.limit("%q writes what a later rpcprof understands: %s", s.name(), what)
		}
		if lost, _, _, _, err := s.seg.Counts(); err == nil {
			p.Lost.Calls += lost
		}
	}
}

// runtime is what the Go runtime says of the window, by the readings of the first
// profiler that has some.
func (c *Capture) runtime(p *profile.Profile, e *profile.Evidence) *profile.Runtime {
	var switches int64
	for i := range p.Threads {
		switches += p.Threads[i].Voluntary + p.Threads[i].Involuntary
	}
	for _, s := range c.services {
		if s.seg == nil || s.onThreads() {
			continue
		}
		samples, err := s.seg.Runtime()
		if err != nil {
			c.limit("the Go runtime's own readings are missing: %v", err)
			continue
		}
		if r := profile.RuntimeOf(samples, p.Window, e.Finished(), switches); r != nil {
			return r
		}
	}
	return nil
}
