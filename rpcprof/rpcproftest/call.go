package rpcproftest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Call is a finished call as one side saw it.
type Call struct {
	ID      uint64
	Parent  uint64 // of the call that it was made in, 0 none
	Method  string
	Side    string // "server" or "client"
	Outcome rpcprof.Outcome
	// Cut says that the call was given up: its last stage ended where that was.
	Cut bool
	// Stages are those whose stamps were both taken. A server's: queue, decode,
	// handler, encode, write. A client's: acquire, encode, queue, write, wire+server,
	// wakeup, decode.
	Stages map[string]time.Duration
	Total  time.Duration // from the first stamp to the last
	// Server is what the reply said of the time at the server, a part of wire+server;
	// 0 where it said nothing. ServerCall is the call's ID there.
	Server     time.Duration
	ServerCall uint64

	Begin, End        int64 // the first stamp and the last, as rpcprof.Now gives them
	BytesIn, BytesOut int
	TraceID           [16]byte
	Regions           []Part // those in its handler, by when they ended
	Tasks             []Part // goroutines that rpcprof.Go started; they may end after the call
}

// Part is a region or a task.
type Part struct {
	Name  string
	Begin int64 // as rpcprof.Now gives it
	Time  time.Duration
}

func newCall(m *segment.Method, r *segment.Record) Call {
	c := Call{
		ID: r.Call, Parent: r.Parent, Method: m.NameString(), Side: m.Side.String(), Outcome: r.Outcome, Cut: r.Flags&segment.FlagCut != 0,
		Stages: map[string]time.Duration{}, Begin: r.Stamps[0], End: r.Stamps[0],
		BytesIn: int(r.BytesIn), BytesOut: int(r.BytesOut), TraceID: r.TraceID,
	}
	for i := segment.Stamp(1); i < segment.StampsOf(m.Side); i++ {
		from, to := r.Stamps[i-1], r.Stamps[i]
		if to == 0 {
			continue
		}
		c.End = to
		if from != 0 {
			c.Stages[segment.StageName(m.Side, segment.Stage(i))] = time.Duration(to - from)
		}
	}
	c.Total = time.Duration(c.End - c.Begin)
	if t, ok := r.ServerTiming(); ok && m.Side == segment.Client {
		c.Server, c.ServerCall = time.Duration(t.Total()), t.Call
	}
	return c
}

// stages are the names of a side's stages, in order.
func stages(side string) (names []string) {
	s := segment.Server
	if side == segment.Client.String() {
		s = segment.Client
	}
	for i := segment.Stamp(1); i < segment.StampsOf(s); i++ {
		names = append(names, segment.StageName(s, segment.Stage(i)))
	}
	return names
}

// String gives the call in a line.
func (c Call) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s in %v:", c.Side, c.Method, c.Outcome, c.Total)
	for _, s := range stages(c.Side) {
		if d, ok := c.Stages[s]; ok {
			fmt.Fprintf(&b, " %s %v", s, d)
		}
	}
	if c.Cut {
		b.WriteString(", given up there")
	}
	return b.String()
}

// Complete fails the test unless the call ended well, has every stage of its side, and
// these add up to the whole: a transport that passes takes all its stamps.
func Complete(t testing.TB, c Call) {
	t.Helper()
	if c.Outcome != rpcprof.OK || c.Cut {
		t.Errorf("the call did not end well: %s", c)
	}
	var sum time.Duration
	for _, s := range stages(c.Side) {
		d, ok := c.Stages[s]
		if !ok {
			t.Errorf("there is no stage %q: a stamp at an end of it was not taken: %s", s, c)
		}
		sum += d
	}
	if sum != c.Total {
		t.Errorf("the stages add up to %v: %s", sum, c)
	}
}

// AtLeast fails the test unless the call has the stage and was in it that long.
func AtLeast(t testing.TB, c Call, stage string, d time.Duration) {
	t.Helper()
	if got, ok := c.Stages[stage]; !ok || got < d {
		t.Errorf("%s took %v, not %v or more: %s", stage, got, d, c)
	}
}
