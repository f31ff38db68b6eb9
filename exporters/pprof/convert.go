package pprof

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	pp "github.com/google/pprof/profile"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/profile"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// The sample types, in this order. All but the first are nanoseconds; wall is the
// sum of the others and of what none of them covers.
const (
	calls = iota
	wall
	cpu
	runq
	blocked
	irq
	types
)

var typeNames = [types]string{"calls", "wall", "cpu", "runq", "blocked", "irq"}

// sampleTypes gives each profile its own: encoding one writes to them.
func sampleTypes() []*pp.ValueType {
	out := make([]*pp.ValueType, types)
	for i, name := range typeNames {
		out[i] = &pp.ValueType{Type: name, Unit: "nanoseconds"}
	}
	out[calls].Unit = "count"
	return out
}

// typeOf gives the sample type that a cause counts under beside wall.
func typeOf(c profile.Cause) (int, bool) {
	switch {
	case strings.HasPrefix(string(c), "cpu."):
		return cpu, true
	case c == profile.RunQueue:
		return runq, true
	case c == profile.IRQ, c == profile.SoftIRQ:
		return irq, true
	case strings.HasPrefix(string(c), "block."), strings.HasPrefix(string(c), "go."), c == profile.Behind:
		return blocked, true
	}
	return 0, false
}

// Write writes the profile, compressed, as go tool pprof reads it.
func Write(w io.Writer, p *profile.Profile) error {
	out, err := Convert(p)
	if err != nil {
		return err
	}
	return out.Write(w)
}

// wallOffset is what the wall clock is ahead of the clock of a profile's times. It
// is read once, so that a profile gives the same bytes whenever it is written.
var wallOffset = sync.OnceValue(func() int64 { return time.Now().UnixNano() - rpcprof.Now() })

// Convert makes a pprof profile. A sample's stack is the frames that waited, then
// what is to blame, the cause, the stage and the method as the outermost ones, so
// that a flame graph reads method, stage, cause, code.
func Convert(p *profile.Profile) (*pp.Profile, error) {
	b := builder{
		out: &pp.Profile{
			SampleType: sampleTypes(), DefaultSampleType: typeNames[wall],
			TimeNanos:     p.Window.StartNS + wallOffset(),
			DurationNanos: p.Window.EndNS - p.Window.StartNS,
		},
		funcs: map[funcKey]*pp.Function{}, locs: map[locKey]*pp.Location{},
	}
	for _, c := range p.Cells {
		b.sample(c)
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

func (b *builder) sample(c profile.Cell) {
	s := &pp.Sample{Value: make([]int64, types), Label: map[string][]string{
		"method": {c.Method}, "stage": {c.Stage}, "cause": {string(c.Cause)},
	}}
	method := c.Method
	if c.Side == segment.Client.String() {
		// A call made inside a handler is a part of that handler's time too.
		method = "calls to " + c.Method
		s.Label["side"] = []string{c.Side}
	}
	s.Value[calls], s.Value[wall] = c.Calls, c.NS
	if t, ok := typeOf(c.Cause); ok {
		s.Value[t] = c.NS
	}
	for _, f := range c.Stack {
		s.Location = append(s.Location, b.location(f))
	}
	if c.Culprit != "" {
		s.Label["culprit"] = []string{c.Culprit}
		// Not its bare name: a method would get the time of those that wait for
		// it added to its own.
		s.Location = append(s.Location, b.location(profile.Frame{Func: "by " + c.Culprit}))
	}
	for _, name := range []string{string(c.Cause), c.Stage, method} {
		s.Location = append(s.Location, b.location(profile.Frame{Func: name}))
	}
	b.out.Sample = append(b.out.Sample, s)
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
