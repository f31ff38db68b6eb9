package text

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
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

func (p *page) methods(pr *profile.Profile) {
	if len(pr.Methods) == 0 {
		return
	}
	p.title("Methods")
	name := max(20, min(48, p.o.Width-52))
	p.line("%-*s %9s %8s %9s %9s %9s", name, "", "calls", "not ok", "p50", "p99", "slow ≥")
	for _, m := range pr.Methods[:min(len(pr.Methods), 20)] {
		bad := m.Calls - m.Outcomes["ok"]
		p.line("%-*s %9s %8s %9s %9s %9s", name, shorten(title(&m), name), thousands(int64(m.Calls)), thousands(int64(bad)),
			blame.Duration(m.P50NS), blame.Duration(m.P99NS), blame.Duration(m.SlowThresholdNS))
	}
	for i := range pr.Methods[:min(len(pr.Methods), 20)] {
		p.lostIn(&pr.Methods[i])
	}
	if n := len(pr.Methods) - 20; n > 0 {
		p.line("… and %d more", n)
	}
}

// title names a method in a table.
func title(m *profile.Method) string {
	if m.Side == "client" {
		return "→ " + m.Method
	}
	return m.Method
}

// lostIn says where the time of calls went that came to nothing.
func (p *page) lostIn(m *profile.Method) {
	for _, o := range slices.Sorted(maps.Keys(m.LostIn)) {
		stages := m.LostIn[o]
		all, most := 0, ""
		for _, s := range slices.Sorted(maps.Keys(stages)) {
			all += stages[s]
			if stages[s] > stages[most] {
				most = s
			}
		}
		p.line("  %s: %s %s, %s of them with most of their time in %s", shorten(title(m), max(12, p.o.Width-60)), thousands(int64(all)), o, thousands(int64(stages[most])), most)
	}
}

// share is one stage and cause of a set.
type share struct {
	stage, cause string
	ns           int64 // mean per call
}

func shares(s *profile.Set) []share {
	var out []share
	for stage, st := range s.Stages {
		for cause, ns := range st.Causes {
			if s.Calls > 0 {
				out = append(out, share{stage, cause, ns / int64(s.Calls)})
			}
		}
	}
	slices.SortFunc(out, func(a, b share) int {
		return cmp.Or(cmp.Compare(b.ns, a.ns), cmp.Compare(a.stage, b.stage), cmp.Compare(a.cause, b.cause))
	})
	return out
}

func (p *page) bars(pr *profile.Profile) {
	for _, m := range pr.Methods[:min(len(pr.Methods), 5)] {
		for _, set := range []struct {
			name string
			*profile.Set
		}{{"typical", &m.Typical}, {"slow", &m.Slow}} {
			if set.Calls == 0 {
				continue
			}
			wall := set.WallNS / int64(set.Calls)
			p.title(fmt.Sprintf("%s, %s calls (%s, mean %s)", shorten(title(&m), max(12, p.o.Width-40)), set.name, thousands(int64(set.Calls)), blame.Duration(wall)))
			width := max(10, p.o.Width-52)
			for i, s := range shares(set.Set) {
				if i == 6 || wall == 0 || float64(s.ns) < 0.01*float64(wall) {
					break
				}
				part := float64(s.ns) / float64(wall)
				p.line("  %-16s %-12s %9s %4.0f %% %s", shorten(s.stage, 16), s.cause, blame.Duration(s.ns), 100*part, strings.Repeat("█", int(part*float64(width)+0.5)))
			}
			p.inside(set.Set)
		}
	}
}

// batch tells how messages that came in one read waited for each other.
func (p *page) batch(pr *profile.Profile) {
	b := &pr.Batch
	if b.MessagesPerRead < 1.1 || len(b.WaitByPositionNS) < 2 {
		return
	}
	p.title(fmt.Sprintf("Reads brought %.1f messages each; wait in the queue by position, and what of it for those before", b.MessagesPerRead))
	var all, mates strings.Builder
	for i, ns := range b.WaitByPositionNS {
		fmt.Fprintf(&all, " %9s", blame.Duration(ns))
		fmt.Fprintf(&mates, " %9s", blame.Duration(b.MatesWaitNS[i]))
	}
	p.line("  waited %s", all.String())
	p.line("  mates  %s", mates.String())
}

// inside lists what has a name in the handlers of a set.
func (p *page) inside(s *profile.Set) {
	for i, in := range s.Inside {
		if i == 5 {
			p.line("    … and %d more in the handlers", len(s.Inside)-i)
			break
		}
		note := ""
		if most := longest(in.Stages); most != "" {
			note = fmt.Sprintf(", most of it in %s", most)
		}
		kind := map[string]string{"client": "call to", "task": "goroutine", "region": "region"}[in.Kind]
		p.line("    in handler: %-9s %s: %s a call, %s%s", kind, shorten(in.Name, max(12, p.o.Width-74)),
			blame.Duration(in.WallNS/int64(s.Calls)), times(float64(in.Count)/float64(s.Calls)), note)
	}
}

func times(n float64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%.3g times", n)
}

func longest(stages map[string]int64) string {
	most := ""
	for _, s := range slices.Sorted(maps.Keys(stages)) {
		if stages[s] > stages[most] {
			most = s
		}
	}
	return most
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
