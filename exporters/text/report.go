package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/rpcprof/toolkit/rpcprof/blame"
	"github.com/rpcprof/toolkit/rpcprof/profile"
)

// A wider report is harder to read; a narrower one has no room for its tables.
const (
	minWidth = 40
	maxWidth = 100
)

// Options say how to write.
type Options struct {
	Width int  // columns, default and most 100
	Color bool // escape sequences for a terminal
}

// Write writes the report. The error is the writer's.
func Write(w io.Writer, r blame.Report, o Options) error {
	if o.Width <= 0 || o.Width > maxWidth {
		o.Width = maxWidth
	}
	o.Width = max(o.Width, minWidth)
	p := &page{o: o}
	p.verdicts(r)
	p.methods(r.Profile)
	p.bars(r.Profile)
	p.batch(r.Profile)
	p.threads(r.Profile)
	p.cost(r.Profile)
	p.interrupts(r.Profile)
	p.inFlight(r.Profile)
	p.footer(r.Profile)
	_, err := io.WriteString(w, p.b.String())
	return err
}

func (p *page) verdicts(r blame.Report) {
	t := "rpcprof"
	if len(r.Targets) > 0 {
		x := r.Targets[0]
		t = fmt.Sprintf("%s (pid %d)", x.Comm, x.PID)
		if x.Service != "" {
			t = fmt.Sprintf("%s, %s", x.Service, t)
		}
	}
	calls := 0
	for _, m := range r.Methods {
		calls += m.Calls
	}
	p.line("%s: %s calls in %s", t, thousands(int64(calls)), blame.Duration(r.Window.EndNS-r.Window.StartNS))
	p.b.WriteByte('\n')
	if len(r.Verdicts) == 0 {
		p.wrapped("", "", nothing(r.Methods))
		return
	}
	for i, v := range r.Verdicts {
		n := fmt.Sprintf("%d. ", i+1)
		if p.o.Color {
			p.b.WriteString("\x1b[1;31m" + n + "\x1b[0m")
			// The number is written; the text is laid out as if it stood there.
			sub := &page{o: p.o}
			sub.wrapped("   ", "   ", v.Sentence)
			p.b.WriteString(strings.TrimPrefix(sub.b.String(), "   "))
			continue
		}
		p.wrapped(n, "   ", v.Sentence)
	}
}

// nothing says that nothing stands out, and what was looked at to say so.
func nothing(methods []profile.Method) string {
	if len(methods) == 0 {
		return "No calls were seen, so there is nothing to judge."
	}
	compared := 0
	for i := range methods {
		if blame.Comparable(&methods[i]) {
			compared++
		}
	}
	if compared == 0 {
		return fmt.Sprintf("Nothing stands out, but there were few calls: comparing takes %d slow and %d typical calls of a method, and none had them. Looking for longer would show more.",
			blame.MinSlow, blame.MinTypical)
	}
	return fmt.Sprintf("Nothing stands out. Slow calls were compared with typical ones for %d of %d methods: none takes twice as long and loses %s or more, and a fifth of the difference, to one known cause. No long wait dominates the typical calls.",
		compared, len(methods), blame.Duration(int64(blame.MinExcess)))
}

func (p *page) threads(pr *profile.Profile) {
	if len(pr.Threads) == 0 {
		return
	}
	p.title(fmt.Sprintf("Threads: %.2f cores busy, the busiest two have %.0f %% of that", pr.CPU.BusyCores, 100*pr.CPU.Top2Share))
	p.line("%9s %-16s %-8s %9s %9s %9s %10s %10s", "tid", "name", "role", "user", "kernel", "run queue", "voluntary", "involunt.")
	for _, t := range pr.Threads[:min(len(pr.Threads), 5)] {
		p.line("%9d %-16s %-8s %9s %9s %9s %10s %10s", t.TID, shorten(t.Comm, 16), t.Role, blame.Duration(t.CPUUserNS), blame.Duration(t.CPUKernelNS),
			blame.Duration(t.RunqNS), thousands(t.Voluntary), thousands(t.Involuntary))
	}
}

// cost says what a call takes of the CPUs, and what of the Go runtime.
func (p *page) cost(pr *profile.Profile) {
	c := pr.CPU
	if c.UserNSPerCall+c.KernelNSPerCall > 0 {
		p.line("A call takes %s of CPU in user mode and %s in the kernel; interrupts on top %s.",
			blame.Duration(c.UserNSPerCall), blame.Duration(c.KernelNSPerCall), blame.Duration(c.IRQNSPerCall))
	}
	var measured []string
	for _, m := range pr.Methods {
		if m.CPUSamples > 0 && len(measured) < 4 {
			measured = append(measured, fmt.Sprintf("%s %s", shorten(m.Method, 32), blame.Duration(m.CPUPerCallNS)))
		}
	}
	if len(measured) > 0 {
		p.wrapped("CPU of its worker's thread: ", "  ", strings.Join(measured, ", ")+".")
	}
	r := pr.Runtime
	if r == nil {
		return
	}
	p.wrapped("", "  ", fmt.Sprintf("Go runtime in %s: %s GC cycles, %s of pauses, %s of assists, %s of marking; heap %s, %s goroutines.",
		blame.Duration(r.WindowNS), thousands(r.GCCycles), blame.Duration(r.GCPauseNS), blame.Duration(r.GCAssistNS), blame.Duration(r.GCMarkNS),
		size(float64(r.HeapBytes)), thousands(r.Goroutines)))
	if r.Calls > 0 {
		p.wrapped("", "  ", fmt.Sprintf("A call allocates %.1f objects, %s; %.1f switches of goroutines and %.1f of threads.",
			r.AllocObjectsPerCall, size(r.AllocBytesPerCall), r.GoroutineSwitchesPerCall, r.OSSwitchesPerCall))
	}
}

func (p *page) interrupts(pr *profile.Profile) {
	var rows []profile.Interrupt
	for _, r := range pr.Interrupts {
		if r.OnCallsNS > 0 && len(rows) < 5 {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return
	}
	p.title("Interrupts that calls lost time to")
	p.line("%4s %-8s %-24s %10s %10s %12s", "cpu", "kind", "name", "count", "time", "on calls")
	for _, r := range rows {
		p.line("%4d %-8s %-24s %10s %10s %12s", r.CPU, r.Kind, shorten(r.Name, 24), thousands(r.Count), blame.Duration(r.NS), blame.Duration(r.OnCallsNS))
	}
}

func (p *page) inFlight(pr *profile.Profile) {
	if len(pr.InFlight) == 0 {
		return
	}
	p.title(fmt.Sprintf("In flight at the end: %s", thousands(int64(len(pr.InFlight)))))
	name := max(12, min(40, p.o.Width-75)) // leaves room for the line it waits in
	for _, c := range pr.InFlight[:min(len(pr.InFlight), 5)] {
		p.line("  %-*s in %-8s for %9s, began %9s ago  %s", name, shorten(inFlightTitle(c), name), within(c), blame.Duration(c.StageAgeNS), blame.Duration(c.AgeNS), c.Location)
	}
}

// within names the stage, and the region of a handler where the owner marked it.
func within(c profile.InFlight) string {
	if c.Region != "" && c.Stage == "handler" {
		return shorten(c.Region, 16)
	}
	return c.Stage
}

func inFlightTitle(c profile.InFlight) string {
	return title(&profile.Method{Method: c.Method, Side: c.Side})
}

func (p *page) footer(pr *profile.Profile) {
	p.b.WriteByte('\n')
	w := pr.Window.EndNS - pr.Window.StartNS
	cost := ""
	if w > 0 {
		n := float64(max(1, len(pr.Host.CPUs)))
		cost = fmt.Sprintf("; looking took %.1f %% of the machine's CPUs", 100*float64(pr.Overhead.ProfilerCPUNS+pr.Overhead.BPFNS)/float64(w)/n)
	}
	p.wrapped("", "", fmt.Sprintf("Coverage %.1f %%; lost: %s events, %s calls, %s stacks, %s samples%s.", 100*pr.Coverage,
		thousands(int64(pr.Lost.Events)), thousands(int64(pr.Lost.Calls)), thousands(int64(pr.Lost.Stacks)), thousands(int64(pr.Lost.Samples)), cost))
	if len(pr.Limits) > 0 {
		p.line("What could not be seen:")
		for _, l := range pr.Limits {
			p.wrapped("- ", "  ", l)
		}
	}
}
