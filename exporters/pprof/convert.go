package pprof

import (
	"fmt"
	"io"
	"strings"
	"time"

	pp "github.com/google/pprof/profile"

	"github.com/rpcprof/toolkit/rpcprof/profile"
)

// The sample types, in this order. All but the first are nanoseconds; wall is the
// sum of the others and of what none of them covers.
var types = []*pp.ValueType{
	{Type: "calls", Unit: "count"},
	{Type: "wall", Unit: "nanoseconds"},
	{Type: "cpu", Unit: "nanoseconds"},
	{Type: "runq", Unit: "nanoseconds"},
	{Type: "blocked", Unit: "nanoseconds"},
	{Type: "irq", Unit: "nanoseconds"},
}

// typeOf gives the sample type that a cause counts under beside wall, 0 for none.
func typeOf(c profile.Cause) int {
	switch {
	case strings.HasPrefix(string(c), "cpu."):
		return 2
	case c == profile.RunQueue:
		return 3
	case c == profile.IRQ, c == profile.SoftIRQ:
		return 5
	case strings.HasPrefix(string(c), "block."), strings.HasPrefix(string(c), "go."), c == profile.Behind:
		return 4
	}
	return 0
}

// Write writes the profile, compressed, as go tool pprof reads it.
func Write(w io.Writer, p *profile.Profile) error {
	out, err := Convert(p)
	if err != nil {
		return err
	}
	return out.Write(w)
}

// Convert makes a pprof profile. A sample's stack is the frames that waited, then
// its cause, stage and method as the outermost ones, so that a flame graph reads
// method, stage, cause, code.
func Convert(p *profile.Profile) (*pp.Profile, error) {
	b := builder{out: &pp.Profile{SampleType: types, DefaultSampleType: "wall",
		TimeNanos:     time.Now().UnixNano() - (p.Window.EndNS - p.Window.StartNS),
		DurationNanos: p.Window.EndNS - p.Window.StartNS},
		funcs: map[funcKey]*pp.Function{}, locs: map[locKey]*pp.Location{}}
	for _, c := range p.Cells {
		s := &pp.Sample{Value: make([]int64, len(types)), Label: map[string][]string{
			"method": {c.Method}, "stage": {c.Stage}, "cause": {string(c.Cause)},
		}}
		if c.Culprit != "" {
			s.Label["culprit"] = []string{c.Culprit}
		}
		s.Value[0], s.Value[1] = c.Calls, c.NS
		if t := typeOf(c.Cause); t != 0 {
			s.Value[t] = c.NS
		}
		for _, f := range c.Stack {
			s.Location = append(s.Location, b.location(f))
		}
		if c.Culprit != "" {
			s.Location = append(s.Location, b.location(profile.Frame{Func: c.Culprit}))
		}
		for _, name := range []string{string(c.Cause), c.Stage, c.Method} {
			s.Location = append(s.Location, b.location(profile.Frame{Func: name}))
		}
		b.out.Sample = append(b.out.Sample, s)
	}
	if err := b.out.CheckValid(); err != nil {
		return nil, fmt.Errorf("profile cannot be written for pprof: %w", err)
	}
	return b.out, nil
}

type funcKey struct{ name, file string }

type locKey struct {
	funcKey
	line int
}

type builder struct {
	out   *pp.Profile
	funcs map[funcKey]*pp.Function
	locs  map[locKey]*pp.Location
}

func (b *builder) location(f profile.Frame) *pp.Location {
	fk := funcKey{f.Func, f.File}
	lk := locKey{fk, f.Line}
	if l := b.locs[lk]; l != nil {
		return l
	}
	fn := b.funcs[fk]
	if fn == nil {
		fn = &pp.Function{ID: uint64(len(b.out.Function) + 1), Name: f.Func, SystemName: f.Func, Filename: f.File}
		b.funcs[fk] = fn
		b.out.Function = append(b.out.Function, fn)
	}
	l := &pp.Location{ID: uint64(len(b.out.Location) + 1), Line: []pp.Line{{Function: fn, Line: int64(f.Line)}}}
	b.locs[lk] = l
	b.out.Location = append(b.out.Location, l)
	return l
}
