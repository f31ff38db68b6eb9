package rpcprof

import (
	"context"
	"testing"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// records reads what has finished since the last time.
func records(t testing.TB, r *segment.Reader, want int) []segment.Record {
	t.Helper()
	recs, err := r.Records(nil)
	if err != nil || len(recs) != want {
		t.Fatalf("%d records, not %d: %v", len(recs), want, err)
	}
	return recs
}

// A client's call has its own stages, and the server's from the reply.
func TestClientCall(t *testing.T) {
	p := profilerFor(t, Config{})
	r := readerOf(t, p)
	m, conn := p.Client("b.B/Get"), p.Conn(nil)

	served := p.Begin(p.Method("b.B/Get"), nil, 1_000_000)
	for s, at := range map[Stamp]int64{Dequeue: 1_100_000, Handler: 1_150_000, Handled: 3_150_000, Write: 3_250_000} {
		served.StampAt(s, at)
	}
	timing := served.Timing()

	c := p.BeginClient(context.Background(), m, 1000)
	c.Via(conn)
	for i, s := range []Stamp{Acquired, Encoded, Write, Sent, Received, Woken} {
		c.StampAt(s, int64(2000+1000*i))
	}
	c.StampAt(Handler, 1) // not a client's
	c.ServerTiming(timing)
	c.End(OK)
	rec := records(t, r, 1)[0]
	for i := range 7 {
		if rec.Stamps[i] != int64(1000+1000*i) {
			t.Errorf("stamp %d is %d", i, rec.Stamps[i])
		}
	}
	if rec.Stamps[segment.Returned] <= rec.Stamps[segment.Woken] || rec.Conn != conn.id || rec.Parent != 0 {
		t.Errorf("the record is %+v", rec)
	}
	got, ok := rec.ServerTiming()
	want := segment.Timing{Call: served.rec.Call, Queue: 100_000, Decode: 50_000, Handler: 2_000_000, Encode: 100_000}
	if !ok || got != want {
		t.Errorf("the server's times are %+v, not %+v", got, want)
	}
	s := p.Snapshot()
	if len(s.Methods) != 1 || s.Methods[0].Side != "client" || s.Methods[0].Stages["wire+server"].Sum != 1000 || s.Methods[0].Stages["server"].Sum != 2_250_000 {
		t.Errorf("snapshot %+v", s)
	}
	served.End(OK)
}

// A reply without times, and times that are damaged, say nothing wrong.
func TestTimingOdd(t *testing.T) {
	p := profilerFor(t, Config{})
	r := readerOf(t, p)
	m := p.Client("m")
	for _, b := range [][24]byte{{}, {23: 0xff}} {
		c := p.BeginClient(context.Background(), m, 0)
		c.ServerTiming(b)
		c.End(OK)
		if _, ok := records(t, r, 1)[0].ServerTiming(); ok {
			t.Error("times came of nothing")
		}
	}
	var all [24]byte
	for i := range all {
		all[i] = 0xff
	}
	c := p.BeginClient(context.Background(), m, 0)
	c.ServerTiming(all)
	c.End(OK)
	if got, ok := records(t, r, 1)[0].ServerTiming(); !ok || got.Handler != (1<<32-1)*segment.TimingUnit {
		t.Errorf("%+v, %v", got, ok)
	}
	// A call whose stages were cut short counts what it has.
	s := p.Begin(p.Method("m"), nil, 0)
	b := s.Timing()
	s.End(Error)
	if b == [24]byte{} {
		t.Error("a call that is still queued tells nothing")
	}
	if ((*Call)(nil)).Timing() != [24]byte{} {
		t.Error("something came of nothing")
	}
}

// A call made inside a handler knows the call it is made in: through the context,
// also on another goroutine, or by the goroutine.
func TestParent(t *testing.T) {
	p := profilerFor(t, Config{})
	r := readerOf(t, p)
	m, cm := p.Method("a.A/Serve"), p.Client("b.B/Get")
	parentOf := func(ctx context.Context) uint64 {
		p.BeginClient(ctx, cm, 0).End(OK)
		return records(t, r, 1)[0].Parent
	}
	if got := parentOf(context.Background()); got != 0 {
		t.Errorf("outside of any call the parent is %x", got)
	}
	c := p.Begin(m, nil, 0)
	ctx := c.Context(context.Background())
	if got := parentOf(ctx); got != c.rec.Call {
		t.Errorf("by context the parent is %x", got)
	}
	elsewhere := make(chan uint64)
	go func() { elsewhere <- parentOf(ctx) }()
	if got := <-elsewhere; got != c.rec.Call {
		t.Errorf("on another goroutine the parent is %x", got)
	}
	c.Start(nil, 0)
	if p.off != nil {
		if got := parentOf(context.Background()); got != c.rec.Call {
			t.Errorf("by goroutine the parent is %x", got)
		}
	}
	go func() { elsewhere <- parentOf(context.Background()) }()
	if got := <-elsewhere; got != 0 {
		t.Errorf("on a goroutine of nobody the parent is %x", got)
	}
	c.End(OK)
	records(t, r, 1)
	next := p.Begin(m, nil, 0) // which has the memory of the one before
	if got := parentOf(ctx); got != 0 {
		t.Errorf("after the end the parent is %x", got)
	}
	next.End(OK)
}

// A call that comes to nothing tells in which stage its time went.
func TestCut(t *testing.T) {
	p := profilerFor(t, Config{})
	r := readerOf(t, p)
	for _, tt := range []struct {
		name    string
		end     func() *Call
		outcome Outcome
		last    segment.Stamp
		cut     bool
	}{
		{"in the queue", func() *Call { return p.Begin(p.Method("m"), nil, 0) }, Cancelled, segment.Dequeue, true},
		{"in the handler", func() *Call {
			c := p.Begin(p.Method("m"), nil, 0)
			c.Start(nil, 0)
			c.Stamp(Handler)
			return c
		}, Expired, segment.Handled, true},
		{"when written", func() *Call {
			c := p.Begin(p.Method("m"), nil, 0)
			c.Stamp(Write)
			c.Stamp(Sent)
			return c
		}, Error, segment.Sent, false},
		{"on the wire", func() *Call {
			c := p.BeginClient(context.Background(), p.Client("m"), 0)
			c.Stamp(Write)
			c.Stamp(Sent)
			return c
		}, Expired, segment.Received, true},
		{"woken with an error", func() *Call {
			c := p.BeginClient(context.Background(), p.Client("m"), 0)
			c.Stamp(Received)
			c.Stamp(Woken)
			return c
		}, Shed, segment.Returned, false},
	} {
		tt.end().End(tt.outcome)
		rec := records(t, r, 1)[0]
		last := segment.Stamp(0)
		for s, at := range rec.Stamps {
			if at != 0 {
				last = segment.Stamp(s)
			}
		}
		if rec.Outcome != tt.outcome || last != tt.last || (rec.Flags&segment.FlagCut != 0) != tt.cut {
			t.Errorf("%s: %v, last stamp %d, cut %v", tt.name, rec.Outcome, last, rec.Flags)
		}
	}
}
