package profile

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
)

// key is what time is summed up by within a stage.
type key struct {
	cause   Cause
	culprit string
	stack   int32
}

// place is what a Detail is summed up by: stacks that wait in one line are one.
type place struct {
	cause             Cause
	culprit, location string
}

type stageSum struct {
	wall, rest  int64
	exact       map[key]int64
	sampled     map[key]int64 // samples
	n           int64         // all samples
	unexplained int64         // calls with time that no exact interval covers
	calls       map[key]int64 // calls that have time in it
	causes      map[key]int64 // nanoseconds, after finish
}

// sums adds up calls of one set.
type sums struct {
	e      *evidence
	inside map[insideKey]*Inside
	calls  int
	wall   int64
	stages map[string]*stageSum
}

func newSums(e *evidence) *sums { return &sums{e: e, stages: map[string]*stageSum{}} }

func (s *sums) stage(name string) *stageSum {
	st := s.stages[name]
	if st == nil {
		st = &stageSum{exact: map[key]int64{}, sampled: map[key]int64{}, calls: map[key]int64{}}
		s.stages[name] = st
	}
	return st
}

func (s *sums) add(j *joined, hits []hit) {
	s.calls++
	s.wall += j.wall
	s.addInside(s.e.parts[j.ID])
	k := 0
	for _, sp := range j.spans {
		st := s.stage(sp.stage)
		st.wall += sp.end - sp.start
		rest := sp.end - sp.start
		for k < len(j.parts) && j.parts[k].start < sp.end {
			p := j.parts[k]
			k++
			at := key{p.cause, p.culprit, p.stack}
			st.exact[at] += p.end - p.start
			st.calls[at]++
			rest -= p.end - p.start
		}
		st.rest += rest
		if rest > 0 {
			st.unexplained++
		}
	}
	for _, h := range hits {
		st := s.stage(h.stage)
		at := key{h.cause, "", h.stack}
		st.sampled[at]++
		st.calls[at]++
		st.n++
	}
}

// finish divides what is left of each stage by its samples.
func (s *sums) finish() {
	for _, st := range s.stages {
		st.causes = make(map[key]int64, len(st.exact)+len(st.sampled)+1)
		for k, ns := range st.exact {
			st.causes[k] += ns
		}
		left := st.rest
		// In a fixed order, so that rounding does not depend on the map's.
		keys := make([]key, 0, len(st.sampled))
		for k := range st.sampled {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, compareKeys)
		for i, k := range keys {
			ns := int64(float64(st.rest) * float64(st.sampled[k]) / float64(st.n))
			if i == len(keys)-1 {
				ns = left
			}
			ns = min(ns, left)
			st.causes[k] += ns
			left -= ns
		}
		if left > 0 {
			none := key{Unknown, "", -1}
			st.causes[none] += left
			st.calls[none] = max(st.calls[none], st.unexplained)
		}
	}
}

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.cause, b.cause), cmp.Compare(a.culprit, b.culprit), cmp.Compare(a.stack, b.stack))
}

// set gives the sums in their public shape.
func (s *sums) set() Set {
	s.finish()
	out := Set{Calls: s.calls, WallNS: s.wall, Stages: map[string]StageSums{}, Inside: s.insides()}
	for name, st := range s.stages {
		ss := StageSums{WallNS: st.wall, Causes: map[string]int64{}, Samples: int(st.n)}
		merged, most, stacks := map[place]int64{}, map[place]int64{}, map[place]int32{}
		for k, ns := range st.causes {
			if ns == 0 {
				continue
			}
			ss.Causes[string(k.cause)] += ns
			at := place{k.cause, k.culprit, Location(s.stack(k.stack))}
			merged[at] += ns
			if ns > most[at] {
				most[at], stacks[at] = ns, k.stack
			}
		}
		perCause := map[Cause]int64{}
		for k, n := range st.sampled {
			perCause[k.cause] += n
		}
		for c, n := range perCause {
			if ss.CI95NS == nil {
				ss.CI95NS = map[string]int64{}
			}
			ss.CI95NS[string(c)] = ci95(n, st.n, st.rest)
		}
		out.Stages[name] = ss
		for at, ns := range merged {
			out.Details = append(out.Details, Detail{
				Stage: name, Cause: at.cause, Culprit: at.culprit, Location: at.location,
				Stack: s.stack(stacks[at]), NS: ns,
			})
		}
	}
	slices.SortFunc(out.Details, func(a, b Detail) int {
		return cmp.Or(cmp.Compare(b.NS, a.NS), cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Cause, b.Cause),
			cmp.Compare(a.Culprit, b.Culprit), cmp.Compare(a.Location, b.Location))
	})
	return out
}

// ci95 is the half width of the 95 % interval of a share n of total samples of
// rest: the normal approximation, and the rule of three where the share is 0 or 1.
func ci95(n, total, rest int64) int64 {
	if total == 0 {
		return 0
	}
	p := float64(n) / float64(total)
	if n == total {
		return int64(min(1, 3/float64(total)) * float64(rest))
	}
	return int64(1.96 * math.Sqrt(p*(1-p)/float64(total)) * float64(rest))
}

func (s *sums) stack(i int32) Stack {
	if i < 0 || int(i) >= len(s.e.Stacks) {
		return nil
	}
	return s.e.Stacks[i]
}

// uncertain gives the wall time and how much of it is unknown or only ".other"
// with nothing that names it.
func (s *sums) uncertain() (wall, vague int64) {
	for _, st := range s.stages {
		wall += st.wall
		for k, ns := range st.causes {
			if k.cause == Unknown || strings.HasSuffix(string(k.cause), ".other") && k.culprit == "" && len(s.stack(k.stack)) == 0 {
				vague += ns
			}
		}
	}
	return wall, vague
}

func cellsOf(method, side string, s *sums) []Cell {
	var out []Cell
	for _, name := range slices.Sorted(maps.Keys(s.stages)) {
		st := s.stages[name]
		for _, k := range slices.SortedFunc(maps.Keys(st.causes), compareKeys) {
			if ns := st.causes[k]; ns > 0 {
				out = append(out, Cell{method, side, name, k.cause, k.culprit, s.stack(k.stack), st.calls[k], ns})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Cell) int { return cmp.Compare(b.NS, a.NS) })
	return out
}
