package profile

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Options of Join.
type Options struct {
	SLONS   int64 // calls over it are slow; 0: calls over the method's p99 are
	Slowest int   // how many of the slowest calls to keep whole, default 10
}

// Join partitions the calls' stages into causes. It fills the parts of a Profile
// that come from calls; the rest is the caller's.
//
// Exact intervals come first; where they overlap, interrupts win over softirqs,
// those over the run queue, that over blocking, and all over waiting behind other
// calls. What is left of a stage is divided, over a set of calls, by the samples
// that fell into it; where there are none it is unknown.
func Join(e *Evidence, o Options) *Profile {
	if o.Slowest == 0 {
		o.Slowest = 10
	}
	x := arrange(e)
	x.partition()
	hits := x.charge()

	p := &Profile{Schema: 1, Window: e.Window, Methods: []Method{}, Slowest: []Slow{}, InFlight: []InFlight{}}
	byMethod := map[uint32][]int{}
	for i := range x.calls {
		if x.calls[i].whole {
			byMethod[x.calls[i].Method] = append(byMethod[x.calls[i].Method], i)
		}
	}
	hitsOf := map[int][]hit{}
	for _, h := range hits {
		hitsOf[h.call] = append(hitsOf[h.call], h)
	}
	var wall, vague int64
	for _, id := range slices.Sorted(mapsKeys(byMethod)) {
		m, all := x.method(id, byMethod[id], hitsOf, o)
		if m.Calls > 0 || m.Slow.Calls > 0 {
			p.Methods = append(p.Methods, m)
		}
		p.Cells = append(p.Cells, cellsOf(m.Method, m.Side, all)...)
		w, v := all.uncertain()
		wall, vague = wall+w, vague+v
	}
	slices.SortStableFunc(p.Methods, func(a, b Method) int { return cmp.Compare(b.Calls, a.Calls) })
	p.Coverage = 1
	if wall > 0 {
		p.Coverage = 1 - float64(vague)/float64(wall)
	}
	x.slowest(p, hitsOf, o.Slowest)
	x.batches(p)
	x.inFlight(p)
	return p
}

func mapsKeys[V any](m map[uint32]V) func(func(uint32) bool) {
	return func(yield func(uint32) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// method makes the sums of one method, and of all its calls together.
func (x *evidence) method(id uint32, calls []int, hits map[int][]hit, o Options) (Method, *sums) {
	m := Method{Method: x.Methods[id], Side: x.side(id).String(), Outcomes: map[string]int{}, SlowThresholdNS: o.SLONS}
	var walls []int64
	for _, i := range calls {
		j := &x.calls[i]
		if j.Outcome == segment.Unfinished {
			continue
		}
		m.Calls++
		m.Outcomes[j.Outcome.String()]++
		m.lostIn(j)
		if j.Outcome == segment.OK {
			walls = append(walls, j.wall)
		}
	}
	m.CPUPerCallNS, m.CPUSamples = x.cpuPerCall(calls)
	slices.Sort(walls)
	m.P50NS, m.P99NS = quantile(walls, 0.50), quantile(walls, 0.99)
	over := func(w int64) bool { return w > m.SlowThresholdNS }
	if o.SLONS == 0 {
		m.SlowThresholdNS = m.P99NS
		over = func(w int64) bool { return w >= m.SlowThresholdNS }
	}
	lo, hi := quantile(walls, 0.25), quantile(walls, 0.75)
	typical, slow, all := newSums(x), newSums(x), newSums(x)
	for _, i := range calls {
		j := &x.calls[i]
		all.add(j, hits[i])
		switch {
		case j.Outcome == segment.Unfinished && !over(j.wall):
			// Just begun; too early to say.
		case j.Outcome != segment.OK || over(j.wall):
			slow.add(j, hits[i])
		case j.wall >= lo && j.wall <= hi:
			typical.add(j, hits[i])
		}
	}
	m.Typical, m.Slow = typical.set(), slow.set()
	all.finish()
	return m, all
}

// quantile gives the value below or at which a share q of the sorted values lies.
func quantile(sorted []int64, q float64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[max(0, min(i, len(sorted)-1))]
}

func (x *evidence) slowest(p *Profile, hits map[int][]hit, n int) {
	order := make([]int, 0, len(x.calls))
	for i := range x.calls {
		if x.calls[i].whole {
			order = append(order, i)
		}
	}
	sort.Slice(order, func(a, b int) bool {
		ja, jb := &x.calls[order[a]], &x.calls[order[b]]
		return ja.wall > jb.wall || ja.wall == jb.wall && ja.ID < jb.ID
	})
	for _, i := range order[:min(n, len(order))] {
		j := &x.calls[i]
		one := newSums(x)
		one.add(j, hits[i])
		set := one.set()
		s := Slow{Call: j.ID, Method: x.Methods[j.Method], Side: j.Side.String(), Outcome: j.Outcome.String(), StartNS: j.start(), WallNS: j.wall, Stages: map[string]map[string]int64{}}
		for name, st := range set.Stages {
			s.Stages[name] = st.Causes
		}
		if j.TraceID != [16]byte{} {
			s.TraceID = fmt.Sprintf("%x", j.TraceID)
		}
		p.Slowest = append(p.Slowest, s)
	}
}

func (x *evidence) inFlight(p *Profile) {
	for i := range x.calls {
		j := &x.calls[i]
		if j.Outcome != segment.Unfinished {
			continue
		}
		last := j.spans[len(j.spans)-1]
		p.InFlight = append(p.InFlight, InFlight{
			Call: j.ID, Method: x.Methods[j.Method], Side: j.Side.String(), Stage: last.stage, Region: j.Region,
			AgeNS: x.Window.EndNS - j.start(), StageAgeNS: x.Window.EndNS - last.start, Goid: j.Goid,
		})
	}
	slices.SortFunc(p.InFlight, func(a, b InFlight) int {
		return cmp.Or(cmp.Compare(b.AgeNS, a.AgeNS), cmp.Compare(a.Call, b.Call))
	})
}
