package text

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rpcprof/toolkit/rpcprof/blame"
	"github.com/rpcprof/toolkit/rpcprof/profile"
)

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
				p.line("  %-16s %-12s %9s %4.0f %% %s", shorten(s.stage, 16), s.cause, blame.Duration(s.ns), 100*part, strings.Repeat("█", int(min(max(part, 0), 1)*float64(width)+0.5)))
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
