package probes

import (
	"cmp"
	"os"
	"slices"

	"github.com/rpcprof/toolkit/rpcprof/profile"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// describe fills in the target, its threads and connections, and the limits.
func (c *Capture) describe(p *profile.Profile, e *profile.Evidence) {
	t := profile.Target{PID: c.pid, Comm: c.comm, Embedded: c.forSlot != nil, Privileges: "same user"}
	switch {
	case c.kern != nil && os.Geteuid() == 0:
		t.Privileges = "root"
	case c.kern != nil:
		t.Privileges = "bpf"
	}
	if c.proc != nil {
		t.Runtime = c.proc.GoVersion()
	}
	if c.forSlot != nil {
		h := c.forSlot.Header()
		t.Service = printable(h.ServiceString())
		if t.Runtime == "" {
			t.Runtime = printable(h.GoVersionString())
		}
	}
	p.Targets = []profile.Target{t}
	c.describeThreads(p, e)
	byConn := map[uint32]int{}
	for i := range e.Calls {
		byConn[e.Calls[i].Conn]++
	}
	p.Connections = []profile.Connection{}
	for id, cn := range c.conns {
		if cn.Open == 0 && byConn[id] == 0 {
			continue
		}
		p.Connections = append(p.Connections, profile.Connection{ID: id, Local: cn.LocalString(), Remote: cn.RemoteString(), Open: cn.Open != 0, Calls: byConn[id]})
	}
	slices.SortFunc(p.Connections, func(a, b profile.Connection) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.ID, b.ID))
	})
	c.locateInFlight(p, e)
	if c.kern != nil && len(e.Calls) > 0 && !c.sawArrivals(e) {
		c.limit("recv stages are missing: no data-ready was seen on the calls' sockets (TCP only)")
	}
	p.Limits = append([]string{}, c.limits...)
}

func (c *Capture) sawArrivals(e *profile.Evidence) bool { return len(e.Arrivals) > 0 }

// describeThreads gives each thread the role in which calls have named it most.
func (c *Capture) describeThreads(p *profile.Profile, e *profile.Evidence) {
	type counts struct{ reader, worker, writer int }
	by := map[uint32]*counts{}
	at := func(tid uint32) *counts {
		if by[tid] == nil {
			by[tid] = &counts{}
		}
		return by[tid]
	}
	for i := range e.Calls {
		t := e.Calls[i].TIDs
		at(t[0]).reader++
		at(t[1]).worker++
		at(t[2]).writer++
	}
	p.Threads = c.threads.threads()
	var all, user, kernel, top2 int64
	for i := range p.Threads {
		th := &p.Threads[i]
		th.Role = "runtime"
		if n := by[uint32(th.TID)]; n != nil && c.forSlot != nil {
			th.Calls = n.worker
			switch most := max(n.reader, n.worker, n.writer); {
			case most == 0:
			case n.worker == most:
				th.Role = segment.KindWorker.String()
			case n.reader == most:
				th.Role = segment.KindReader.String()
			default:
				th.Role = segment.KindWriter.String()
			}
		}
		user, kernel = user+th.CPUUserNS, kernel+th.CPUKernelNS
		if i < 2 {
			top2 += th.CPUUserNS + th.CPUKernelNS
		}
	}
	all = user + kernel
	if w := p.Window.EndNS - p.Window.StartNS; w > 0 {
		p.CPU.BusyCores = float64(all) / float64(w)
	}
	if all > 0 {
		p.CPU.Top2Share = float64(top2) / float64(all)
	}
	if n := int64(len(c.records)); n > 0 {
		p.CPU.UserNSPerCall, p.CPU.KernelNSPerCall = user/n, kernel/n
	}
}

// locateInFlight tells where the calls still in flight were last seen parked.
func (c *Capture) locateInFlight(p *profile.Profile, e *profile.Evidence) {
	if len(p.InFlight) == 0 {
		return
	}
	last := map[uint64]int32{}
	for i := range e.Samples {
		if s := &e.Samples[i]; s.Call != 0 {
			last[s.Call] = s.Stack
		}
	}
	for i := range p.InFlight {
		f := &p.InFlight[i]
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
			v := ev.Vector
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
		if n := int64(len(c.records)); n > 0 {
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
	if c.forSlot != nil {
		lost, _, _, _, err := c.forSlot.Counts()
		if err == nil {
			p.Lost.Calls += lost
		}
	}
	if c.seg != nil {
		p.Lost.Calls += c.seg.Overwritten + c.seg.Torn
	}
}
