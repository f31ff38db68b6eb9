package profile

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Part is a region of a handler, or a goroutine that one started. A task may go on
// when its call has ended.
type Part struct {
	Call       uint64 // that it belongs to
	Method     uint32 // its name, in Evidence.Methods
	Side       segment.Side
	Start, End int64
}

// Inside is what handlers of a set of calls did that has a name: regions, goroutines
// they started, and calls they made. They may overlap each other, so they do not
// add up to the handler stage.
type Inside struct {
	Kind   string `json:"kind"` // region, task or client
	Name   string `json:"name"`
	Count  int    `json:"count"`
	WallNS int64  `json:"wall_ns"`
	// Stages are those of the calls made.
	Stages map[string]int64 `json:"stages,omitempty"`
}

type insideKey struct {
	side segment.Side
	name string
}

// inside finds the parts and the calls made by the call they belong to.
func (x *evidence) inside() map[uint64][]insideOf {
	out := map[uint64][]insideOf{}
	for i := range x.Parts {
		p := &x.Parts[i]
		if _, ok := x.byID[p.Call]; ok && p.End >= p.Start && int(p.Method) < len(x.Methods) {
			out[p.Call] = append(out[p.Call], insideOf{insideKey{p.Side, x.Methods[p.Method]}, p.End - p.Start, nil})
		}
	}
	for i := range x.calls {
		j := &x.calls[i]
		if _, ok := x.byID[j.Parent]; ok && j.Parent != 0 && j.Side == segment.Client {
			out[j.Parent] = append(out[j.Parent], insideOf{insideKey{segment.Client, x.Methods[j.Method]}, j.wall, j.spans})
		}
	}
	return out
}

type insideOf struct {
	insideKey
	wall  int64
	spans []span
}

// addInside adds what one call's handler did.
func (s *sums) addInside(parts []insideOf) {
	for _, p := range parts {
		if s.inside == nil {
			s.inside = map[insideKey]*Inside{}
		}
		in := s.inside[p.insideKey]
		if in == nil {
			in = &Inside{Kind: p.side.String(), Name: p.name}
			s.inside[p.insideKey] = in
		}
		in.Count++
		in.WallNS += p.wall
		for _, sp := range p.spans {
			if in.Stages == nil {
				in.Stages = map[string]int64{}
			}
			in.Stages[sp.stage] += sp.end - sp.start
		}
	}
}

// insides lists them, longest first.
func (s *sums) insides() []Inside {
	var out []Inside
	for _, in := range s.inside {
		c := *in
		c.Stages = maps.Clone(in.Stages)
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Inside) int {
		return cmp.Or(cmp.Compare(b.WallNS, a.WallNS), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return out
}
