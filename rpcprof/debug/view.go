package debug

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/blame"
	"github.com/rpcprof/toolkit/rpcprof/profile"
)

// How much of each list the page shows.
const (
	maxMethods = 100
	maxCallsOf = 12
	maxInside  = 20
)

// pageView is what the page's template takes: text and numbers, nothing to work out.
type pageView struct {
	Service, PID, Go, Looked string
	Verdicts                 []string
	Nothing                  string
	Legend                   []part
	Methods                  []methodRow
	MoreMethods              int
	Inside                   []insideRow
	Stages                   []stageCount
	Oldest                   []profileInFlight
	InFlight                 int
	Slow, Failed             []callRow
	Batch                    []batchRow
	PerRead                  string
	Runtime                  []fact
	Threads                  []threadRow
	CPU                      string
	Lost                     string
	Limits                   []string
}

// part is a piece of a bar.
type part struct {
	Name, Class, Title string
	Percent            float64
}

type methodRow struct {
	Name, Calls, NotOK, P50, P99 string
	Typical, Slow                []part
	LostIn                       string
	Since, SinceP99              string
}

type insideRow struct{ Method, Kind, Name, Per, Time, Note string }

type stageCount struct {
	Name, Stage string
	Calls       int
}

type profileInFlight struct{ Name, Stage, Age, InStage, Region string }

type callRow struct {
	Ago, Name, Outcome, Wall, In, Trace string
	Bar                                 []part
	width                               int64
}

type batchRow struct {
	Position    string
	Wait, Mates string
}

type fact struct{ Name, Value string }

type threadRow struct{ TID, Name, Role, User, Kernel, RunQueue, Switches string }

// order is how stages follow each other in a bar.
var order = []string{
	"recv", "acquire", "queue", "decode", "handler", "encode", "write", "wire+server", "wire+recv",
	"server.queue", "server.decode", "server.handler", "server.encode", "wakeup",
}

// inOrder lists stages by when they come; of a client's call encode comes before queue.
func inOrder(stages []string, client bool) {
	rank := func(s string) int {
		first, _, _ := strings.Cut(s, "+")
		if strings.HasPrefix(s, "wire+") {
			first = s
		}
		if client {
			switch first {
			case "encode":
				return 2
			case "queue":
				return 3
			case "decode":
				return 100
			}
		}
		return 10 * slices.Index(order, first)
	}
	slices.SortStableFunc(stages, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
}

// class is the style of a stage's part of a bar.
func class(stage string) string {
	base := strings.TrimPrefix(stage, "server.")
	base, _, _ = strings.Cut(base, "+")
	switch base {
	case "recv", "queue", "decode", "handler", "encode", "write", "acquire", "wire", "wakeup":
		if strings.HasPrefix(stage, "server.") {
			return base + " far"
		}
		return base
	}
	return "other"
}

// bar divides a width by stages; parts of less than a third of a percent are left out.
func bar(stages map[string]int64, client bool, whole int64) []part {
	names := make([]string, 0, len(stages))
	for s := range stages {
		names = append(names, s)
	}
	inOrder(names, client)
	var out []part
	for _, s := range names {
		if p := 100 * float64(stages[s]) / float64(max(1, whole)); p >= 0.3 {
			out = append(out, part{s, class(s), fmt.Sprintf("%s %s (%.0f %%)", s, blame.Duration(stages[s]), p), p})
		}
	}
	return out
}

func view(s *seen) pageView {
	p := s.report.Profile
	v := pageView{
		Service: cmp.Or(s.service, p.Targets[0].Comm), PID: fmt.Sprint(p.Targets[0].PID), Go: p.Targets[0].Runtime,
		InFlight: len(p.InFlight), Limits: p.Limits,
	}
	length := time.Duration(p.Window.EndNS - p.Window.StartNS).Round(10 * time.Millisecond)
	n := 0
	for i := range p.Methods {
		n += p.Methods[i].Calls
	}
	v.Looked = fmt.Sprintf("%s calls that finished in the last %v and are still held", count(n), length)
	if s.windowed {
		v.Looked = fmt.Sprintf("%s calls that finished in %v of looking", count(n), length)
	}
	v.Looked += fmt.Sprintf("; up for %v", s.uptime.Round(time.Second))
	for _, d := range s.report.Verdicts {
		v.Verdicts = append(v.Verdicts, d.Sentence)
	}
	v.Nothing = "Nothing stands out among stages and queues."
	if n == 0 {
		v.Nothing = "No calls were seen, so there is nothing to judge."
	}
	v.methods(s)
	v.inFlight(p)
	v.calls(s)
	v.rest(p)
	v.Lost = fmt.Sprintf("%s calls were not recorded or not read", count(int(p.Lost.Calls)))
	return v
}

// methods fills the table, and what is inside handlers.
func (v *pageView) methods(s *seen) {
	since := map[[2]string]*rpcprof.MethodSnapshot{}
	for i := range s.since.Methods {
		m := &s.since.Methods[i]
		since[[2]string{m.Side, m.Method}] = m
	}
	seenStages := map[string]bool{}
	ms := s.report.Methods
	v.MoreMethods = max(0, len(ms)-maxMethods)
	for i := range ms[:min(len(ms), maxMethods)] {
		m := &ms[i]
		client := m.Side == "client"
		row := methodRow{
			Name: title(m.Method, m.Side), Calls: count(m.Calls), NotOK: count(m.Calls - m.Outcomes["ok"]),
			P50: blame.Duration(m.P50NS), P99: blame.Duration(m.P99NS), LostIn: lostIn(m),
			Typical: bar(walls(&m.Typical), client, m.Typical.WallNS), Slow: bar(walls(&m.Slow), client, m.Slow.WallNS),
		}
		if h := since[[2]string{m.Side, m.Method}]; h != nil {
			row.Since = count(int(h.Total.Count))
			row.SinceP99 = quantile(h.Total, 0.99)
		}
		for _, p := range slices.Concat(row.Typical, row.Slow) {
			seenStages[p.Name] = true
		}
		v.Methods = append(v.Methods, row)
		for _, set := range []struct {
			name string
			*profile.Set
		}{{"typical", &m.Typical}, {"slow", &m.Slow}} {
			for _, in := range set.Inside {
				if len(v.Inside) == maxInside {
					break
				}
				v.Inside = append(v.Inside, insideRow{
					Method: row.Name + ", " + set.name, Kind: in.Kind, Name: in.Name,
					Per:  fmt.Sprintf("%.3g", float64(in.Count)/float64(set.Calls)),
					Time: blame.Duration(in.WallNS / int64(set.Calls)), Note: note(in.Stages),
				})
			}
		}
	}
	var names []string
	for name := range seenStages {
		names = append(names, name)
	}
	inOrder(names, false)
	for _, name := range names {
		v.Legend = append(v.Legend, part{Name: name, Class: class(name)})
	}
}

func (v *pageView) inFlight(p *profile.Profile) {
	type key struct{ name, stage string }
	by := map[key]int{}
	for i, c := range p.InFlight {
		name := title(c.Method, c.Side)
		by[key{name, c.Stage}]++
		if i < maxCallsOf {
			v.Oldest = append(v.Oldest, profileInFlight{name, c.Stage, blame.Duration(c.AgeNS), blame.Duration(c.StageAgeNS), c.Region})
		}
	}
	for k, n := range by {
		v.Stages = append(v.Stages, stageCount{k.name, k.stage, n})
	}
	slices.SortFunc(v.Stages, func(a, b stageCount) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Stage, b.Stage))
	})
	v.Stages = v.Stages[:min(len(v.Stages), maxCallsOf)]
}
