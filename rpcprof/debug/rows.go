package debug

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/blame"
	"github.com/rpcprof/toolkit/rpcprof/profile"
)

// calls fills the slowest calls and those that failed.
func (v *pageView) calls(s *seen) {
	end := s.report.Window.EndNS
	var longest int64
	add := func(to []callRow, c *profile.Slow) []callRow {
		stages := map[string]int64{}
		for stage, causes := range c.Stages {
			for _, ns := range causes {
				stages[stage] += ns
			}
		}
		longest = max(longest, c.WallNS)
		return append(to, callRow{
			Ago: ago(end - c.StartNS - c.WallNS), Name: title(c.Method, c.Side), Outcome: c.Outcome, Wall: blame.Duration(c.WallNS),
			In: most(stages), Trace: c.TraceID, Bar: bar(stages, c.Side == "client", c.WallNS), width: c.WallNS,
		})
	}
	failed := slices.Clone(s.kept)
	slices.SortFunc(failed, func(a, b profile.Slow) int { return cmp.Compare(b.StartNS+b.WallNS, a.StartNS+a.WallNS) })
	for i := range s.kept {
		if len(v.Slow) < maxCallsOf && s.kept[i].WallNS > 0 {
			v.Slow = add(v.Slow, &s.kept[i])
		}
	}
	slowest := longest
	for i := range failed {
		if len(v.Failed) < maxCallsOf && failed[i].Outcome != "ok" {
			v.Failed = add(v.Failed, &failed[i])
		}
	}
	scale(v.Slow, slowest)
	scale(v.Failed, longest)
}

// scale makes the bars of several calls comparable.
func scale(rows []callRow, longest int64) {
	for i := range rows {
		for k := range rows[i].Bar {
			rows[i].Bar[k].Percent *= float64(rows[i].width) / float64(max(1, longest))
		}
	}
}

// rest fills in what does not belong to a method.
func (v *pageView) rest(p *profile.Profile) {
	if b := p.Batch; b.MessagesPerRead > 1.05 && len(b.WaitByPositionNS) > 1 {
		v.PerRead = fmt.Sprintf("%.1f", b.MessagesPerRead)
		for i, ns := range b.WaitByPositionNS {
			v.Batch = append(v.Batch, batchRow{strconv.Itoa(i + 1), blame.Duration(ns), blame.Duration(b.MatesWaitNS[i])})
		}
		if n := len(v.Batch); n == 8 {
			v.Batch[n-1].Position += " and on"
		}
	}
	if r := p.Runtime; r != nil {
		v.Runtime = []fact{
			{"goroutines", count(int(r.Goroutines))},
			{"heap", size(float64(r.HeapBytes))},
			{"collections", fmt.Sprintf("%d in %v, %d pauses of %s in all", r.GCCycles, time.Duration(r.WindowNS).Round(100*time.Millisecond), r.GCPauses, blame.Duration(r.GCPauseNS))},
			{"CPU for collecting", fmt.Sprintf("%s by assists, %s by workers", blame.Duration(r.GCAssistNS), blame.Duration(r.GCMarkNS))},
		}
		if r.Calls > 0 {
			v.Runtime = append(v.Runtime,
				fact{"allocated a call", fmt.Sprintf("%.3g objects, %s", r.AllocObjectsPerCall, size(r.AllocBytesPerCall))},
				fact{"goroutine switches a call", fmt.Sprintf("about %.3g", r.GoroutineSwitchesPerCall)})
			if len(p.Threads) > 0 {
				v.Runtime = append(v.Runtime, fact{"thread switches a call", fmt.Sprintf("%.3g", r.OSSwitchesPerCall)})
			}
		}
	}
	if len(p.Threads) > 0 {
		v.CPU = fmt.Sprintf("%.2f cores busy, the busiest two threads have %.0f %% of that; a call takes %s in user mode and %s in the kernel",
			p.CPU.BusyCores, 100*p.CPU.Top2Share, blame.Duration(p.CPU.UserNSPerCall), blame.Duration(p.CPU.KernelNSPerCall))
		for _, t := range p.Threads[:min(len(p.Threads), maxCallsOf)] {
			v.Threads = append(v.Threads, threadRow{
				strconv.Itoa(t.TID), t.Comm, t.Role, blame.Duration(t.CPUUserNS), blame.Duration(t.CPUKernelNS), blame.Duration(t.RunqNS),
				count(int(t.Voluntary)) + " + " + count(int(t.Involuntary)),
			})
		}
	}
}

// title names a method in a table.
func title(method, side string) string {
	if side == "client" {
		return "→ " + method
	}
	return method
}

// walls gives the stages' times of a set.
func walls(s *profile.Set) map[string]int64 {
	out := map[string]int64{}
	for name, st := range s.Stages {
		out[name] = st.WallNS
	}
	return out
}

// most is the stage with the most time.
func most(stages map[string]int64) string {
	best := ""
	for _, s := range slices.Sorted(maps.Keys(stages)) {
		if best == "" || stages[s] > stages[best] {
			best = s
		}
	}
	return best
}

func note(stages map[string]int64) string {
	if s := most(stages); s != "" {
		return "most of it in " + s
	}
	return ""
}

// lostIn says where the time of calls went that came to nothing.
func lostIn(m *profile.Method) string {
	out := ""
	for _, o := range slices.Sorted(maps.Keys(m.LostIn)) {
		all := 0
		by := map[string]int64{}
		for s, n := range m.LostIn[o] {
			all += n
			by[s] = int64(n)
		}
		if out != "" {
			out += "; "
		}
		out += fmt.Sprintf("%s %s, most in %s", count(all), o, most(by))
	}
	return out
}

// quantile gives the bounds of the bucket that a share of the durations lies below.
func quantile(h rpcprof.Histogram, q float64) string {
	var sum uint64
	out := ""
	h.Each(func(lo, hi time.Duration, n uint64) {
		if before := sum; float64(before) < q*float64(h.Count) {
			out = blame.Duration(int64(lo)) + " – " + blame.Duration(int64(hi))
		}
		sum += n
	})
	return out
}

func count(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func size(bytes float64) string {
	for _, unit := range []string{"B", "KB", "MB", "GB"} {
		if bytes < 1000 || unit == "GB" {
			return fmt.Sprintf("%.3g %s", bytes, unit)
		}
		bytes /= 1000
	}
	return ""
}

func ago(ns int64) string {
	d := time.Duration(max(ns, 0))
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}
