package rpcprof

import (
	"math"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

func profilerFor(t testing.TB, cfg Config) *Profiler {
	t.Helper()
	p := New(cfg)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func readerOf(t testing.TB, p *Profiler) *segment.Reader {
	t.Helper()
	r, err := p.Reader()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// full makes a whole call with given stamps.
func full(p *Profiler, m *Method, conn *Conn, r *Role, t [6]int64) {
	c := p.Begin(m, conn, t[0])
	c.Request(10, 20, 3, 1, 2)
	c.Trace([16]byte{1}, [8]byte{2})
	c.Start(r, t[1])
	for s := Handler; s <= Sent; s++ {
		c.StampAt(s, t[s])
	}
	c.Reply(30)
	c.Release(t[5] + 1)
	c.End(OK)
}

// Every stamp comes back in the record, and each stage counts in its histogram.
func TestRecord(t *testing.T) {
	p := profilerFor(t, Config{})
	r := readerOf(t, p)
	m, conn := p.Method("a.A/One"), p.Conn(nil)
	q := p.Queue()
	w := q.Worker()
	stamps := [6]int64{1000, 1100, 1300, 2300, 2700, 3500}
	full(p, m, conn, w, stamps)
	recs, err := r.Records(nil)
	if err != nil || len(recs) != 1 {
		t.Fatalf("%d records, %v", len(recs), err)
	}
	rec := recs[0]
	if [6]int64(rec.Stamps[:6]) != stamps || rec.Release != 3501 || rec.Outcome != OK || rec.Conn != conn.id || rec.Queue != q.id ||
		rec.Worker != w.index || rec.Workers != 1 || rec.BytesIn != 10 || rec.BytesOut != 30 || rec.Offset != 20 ||
		rec.Batch != 3 || rec.BatchPos != 1 || rec.BatchSize != 2 || rec.TraceID[0] != 1 || rec.SpanID[0] != 2 {
		t.Errorf("the record is %+v", rec)
	}
	if p.off != nil && (rec.Goid == 0 || rec.RecvTID == 0 || rec.HandlerTID == 0 || rec.WriteTID == 0) {
		t.Errorf("goroutine %d, threads %d, %d, %d", rec.Goid, rec.RecvTID, rec.HandlerTID, rec.WriteTID)
	}
	s := p.Snapshot()
	if len(s.Methods) != 1 || s.Methods[0].Method != "a.A/One" || s.Methods[0].Total.Count != 1 || s.Methods[0].Total.Sum != 2500 {
		t.Fatalf("snapshot %+v", s)
	}
	for stage, want := range map[string]int64{"queue": 100, "decode": 200, "handler": 1000, "encode": 400, "write": 800} {
		h := s.Methods[0].Stages[stage]
		if h.Count != 1 || int64(h.Sum) != want {
			t.Errorf("%s: %d calls of %d ns, not %d", stage, h.Count, h.Sum, want)
		}
	}
}

// What a caller gets wrong does not make the record one that is refused.
func TestOddValues(t *testing.T) {
	p := profilerFor(t, Config{})
	r := readerOf(t, p)
	m := p.Method("m")
	for range 2 {
		c := p.Begin(m, nil, -5)
		c.Request(-1, -1, 0, 9, 3)
		c.Request(math.MaxInt, -1, 0, -9, -3)
		c.Enqueue(nil)
		c.Start(nil, math.MinInt64)
		c.StampAt(Handled, 7)
		c.StampAt(200, 7)
		c.Start(nil, Now()) // handed on
		c.Reply(-1)
		c.End(250)
		c.End(OK)
		c.Release(5)
		c.Stamp(Sent)
		c.Request(1, 1, 1, 1, 1)
		c.Trace([16]byte{1}, [8]byte{})
	}
	recs, err := r.Records(nil)
	if err != nil || len(recs) != 2 || r.Torn != 0 {
		t.Fatalf("%d records, %d torn, %v", len(recs), r.Torn, err)
	}
	if recs[1].TraceID != [16]byte{} || recs[1].Batch != 0 {
		t.Error("what was said of a call after its end is in the next")
	}
	// What belongs to another Profiler is not taken.
	other := profilerFor(t, Config{Methods: 1})
	if c := other.Begin(m, nil, 1); c != nil || other.Snapshot().Lost != 1 {
		t.Error("a method of another Profiler was taken")
	}
	c := p.Begin(m, other.Conn(nil), 1)
	c.Enqueue(other.Queue())
	c.Start(other.Queue().Worker(), 2)
	c.End(OK)
	if recs, _ = r.Records(nil); len(recs) != 1 || recs[0].Conn != 0 || recs[0].Queue != 0 || recs[0].Worker != 0 {
		t.Errorf("records %+v", recs)
	}
}

// Nothing is there, and nothing happens.
func TestNil(t *testing.T) {
	for _, p := range []*Profiler{nil, {}} {
		if p.Err() != nil || p.Close() != nil || p.Queue() != nil || p.Conn(nil) != nil || len(p.Snapshot().Methods) != 0 {
			t.Error("something came of nothing")
		}
		m := p.Method("m")
		_ = m.Name()
		c := p.Begin(m, nil, 1)
		if m != nil || c != nil {
			t.Error("something came of nothing")
		}
	}
	for _, c := range []*Call{nil, {}} {
		c.Request(1, 1, 1, 1, 1)
		c.Enqueue(nil)
		c.Enqueue(&Queue{})
		c.Trace([16]byte{}, [8]byte{})
		c.Start(nil, 1)
		c.Stamp(Handler)
		c.StampAt(Handler, 1)
		c.Release(1)
		c.Reply(1)
		c.End(OK)
	}
	for _, q := range []*Queue{nil, {}} {
		q.Worker().Close()
	}
	for _, c := range []*Conn{nil, {}} {
		c.Reader().Close()
		c.Writer().Close()
		c.Close()
	}
	(&Role{}).Close()
	Histogram{}.Each(nil)
}

// slotOf follows the index from the running goroutine, 0 and false when it is not in it.
func slotOf(p *Profiler) (uint32, bool) {
	g := uint64(uintptr(getg()))
	for _, e := range p.seg.Index[segment.BucketOf(g, p.seg.IndexBits)] {
		if e.G == g {
			return e.Slot, true
		}
	}
	return 0, false
}

func wantSlot(t *testing.T, p *Profiler, what string, want uint32) {
	t.Helper()
	got, ok := slotOf(p)
	if want == noSlot {
		if ok {
			t.Errorf("%s: the goroutine leads to slot %d, not to none", what, got)
		}
		return
	}
	if !ok || got != want {
		t.Errorf("%s: the goroutine leads to slot %d (%v), not %d", what, got, ok, want)
		return
	}
	if s := &p.seg.Slots[got]; s.G != uint64(uintptr(getg())) || s.Goid != p.off.goid(getg()) {
		t.Errorf("%s: the slot is of another goroutine", what)
	}
}

// The index leads from a goroutine to the innermost thing that it does.
func TestIndex(t *testing.T) {
	if getg() == nil {
		t.Skip("goroutines are not known on ", runtime.GOARCH)
	}
	p := profilerFor(t, Config{})
	m := p.Method("m")
	begin := func(r *Role) *Call { c := p.Begin(m, nil, 1); c.Start(r, 2); return c }
	wantSlot(t, p, "at first", noSlot)
	plain := begin(nil)
	wantSlot(t, p, "a call without a role", plain.number)
	plain.End(OK)
	wantSlot(t, p, "after it", noSlot)

	reader := p.Conn(nil).Reader()
	worker := p.Queue().Worker()
	wantSlot(t, p, "a role within a role", worker.index)
	outer := begin(worker)
	wantSlot(t, p, "a call", outer.number)
	inner := begin(worker)
	wantSlot(t, p, "a nested call", inner.number)
	inner.Start(worker, 3)
	inner.Release(4)
	wantSlot(t, p, "the outer call again", outer.number)
	inner.End(OK)
	outer.End(OK)
	wantSlot(t, p, "the role again", worker.index)

	outer, inner = begin(worker), begin(worker)
	outer.End(OK)
	wantSlot(t, p, "the outer call ended first", inner.number)
	inner.End(OK)
	wantSlot(t, p, "then the inner one", worker.index)

	// A call that another goroutine ends, with the next begun already.
	first := begin(worker)
	second := begin(worker)
	done := make(chan struct{})
	go func() { first.End(OK); close(done) }()
	<-done
	wantSlot(t, p, "the first ended elsewhere", second.number)
	second.End(OK)
	wantSlot(t, p, "then the second", worker.index)

	worker.Close()
	worker.Close()
	wantSlot(t, p, "the outer role again", reader.index)
	late := begin(worker) // its role has ended
	wantSlot(t, p, "a call of a role that has ended", late.number)
	late.End(OK)
	reader.Close()
	wantSlot(t, p, "at last", noSlot)
}

// Calls pass between goroutines, more at once than there are slots; each is in
// a record, or counted as overwritten or lost, and the histograms hold them all.
func TestConcurrent(t *testing.T) {
	const n, producers, consumers = 20_000, 4, 4
	p := profilerFor(t, Config{CallsInFlight: 32})
	r := readerOf(t, p)
	m := p.Method("m")
	q := p.Queue()
	calls := make(chan *Call, 500)
	ends := make(chan *Call, 500)
	var produce, consume, end sync.WaitGroup
	for range producers {
		produce.Go(func() {
			conn := p.Conn(nil)
			defer conn.Close()
			reader := conn.Reader()
			defer reader.Close()
			for range n / producers {
				c := p.Begin(m, conn, Now())
				c.Enqueue(q)
				calls <- c
			}
		})
	}
	for i := range consumers {
		consume.Go(func() {
			w := q.Worker()
			defer w.Close()
			for c := range calls {
				c.Start(w, Now())
				c.Stamp(Handler)
				c.Stamp(Handled)
				if i%2 == 0 {
					c.Release(Now())
				}
				ends <- c
			}
		})
		end.Go(func() {
			for c := range ends {
				c.Stamp(Write)
				c.Stamp(Sent)
				c.End(OK)
			}
		})
	}
	seen, stop := make(chan int), make(chan struct{})
	go func() { // one who looks meanwhile
		for {
			select {
			case <-stop:
				close(seen)
				return
			default:
				_ = p.Snapshot()
				runtime.Gosched()
			}
		}
	}()
	produce.Wait()
	close(calls)
	consume.Wait()
	close(ends)
	end.Wait()
	close(stop)
	<-seen
	recs, err := r.Records(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := p.Snapshot()
	if got := uint64(len(recs)) + r.Overwritten + s.Lost; got != n || r.Torn != 0 {
		t.Errorf("%d records + %d overwritten + %d lost = %d of %d; %d torn", len(recs), r.Overwritten, s.Lost, got, n, r.Torn)
	}
	ids := map[uint64]bool{}
	for _, rec := range recs {
		ids[rec.Call] = true
		for _, at := range rec.Stamps[:segment.ServerStamps] {
			if at == 0 {
				t.Fatalf("a stamp is missing: %+v", rec)
			}
		}
	}
	if len(ids) != len(recs) {
		t.Errorf("%d ids for %d calls", len(ids), len(recs))
	}
	for stage, h := range s.Methods[0].Stages {
		if h.Count != n-s.Lost {
			t.Errorf("%s counts %d calls of %d", stage, h.Count, n-s.Lost)
		}
	}
	slots, err := r.Slots()
	if err != nil || len(slots) != 0 {
		t.Errorf("slots still in use: %v, %v", slots, err)
	}
	for i := range p.seg.Index {
		for _, e := range p.seg.Index[i] {
			if e.G != 0 && p.seg.Slots[e.Slot].G == e.G {
				t.Errorf("goroutine %x is still bound to slot %d", e.G, e.Slot)
			}
		}
	}
}

// Calls beyond the slots are recorded all the same.
func TestMoreThanSlots(t *testing.T) {
	const n = 500
	p := profilerFor(t, Config{CallsInFlight: 40})
	r := readerOf(t, p)
	m := p.Method("m")
	before := uint64(0)
	for round := range 2 {
		var cs []*Call
		for range n {
			c := p.Begin(m, nil, 1)
			c.Start(nil, 2)
			cs = append(cs, c)
		}
		// How many find a slot depends on the Ps, which keep free ones for themselves.
		slots, err := r.Slots()
		_, noSlot, _, _, _ := r.Counts()
		if err != nil || len(slots) > 64 || uint64(len(slots))+noSlot-before != n {
			t.Errorf("%d slots in use and %d calls without, %v", len(slots), noSlot-before, err)
		}
		before = noSlot
		for _, c := range cs {
			c.End(OK)
		}
		if recs, err := r.Records(nil); err != nil || len(recs) != n {
			t.Errorf("round %d: %d records, %v", round, len(recs), err)
		}
	}
	if p.Snapshot().Lost != 0 {
		t.Error("calls were lost")
	}
}

// More Ps than shards share the last one.
func TestMoreProcs(t *testing.T) {
	p := profilerFor(t, Config{})
	r := readerOf(t, p)
	m := p.Method("m")
	before := runtime.GOMAXPROCS(len(p.shards) + 4)
	defer runtime.GOMAXPROCS(before)
	const n, each = 8, 500
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for range each {
				full(p, m, nil, nil, [6]int64{1, 2, 3, 4, 5, 6})
			}
		})
	}
	wg.Wait()
	recs, err := r.Records(nil)
	if got := uint64(len(recs)) + r.Overwritten + p.Snapshot().Lost; err != nil || got != n*each {
		t.Errorf("%d of %d calls, %v", got, n*each, err)
	}
}

func TestClose(t *testing.T) {
	p := New(Config{})
	r := readerOf(t, p)
	m, conn := p.Method("m"), p.Conn(nil)
	under := p.Begin(m, conn, 1)
	for range 2 {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	under.Start(nil, 2)
	under.Stamp(Handler)
	under.End(OK)
	if c := p.Begin(m, conn, 1); c != nil {
		t.Error("a call was begun after Close")
	}
	if w := p.Queue().Worker(); w != nil {
		t.Error("a role was made after Close")
	}
	conn.Close()
	recs, err := r.Records(nil)
	if lost, _, _, closed, _ := r.Counts(); len(recs) != 0 || err != nil || lost != 0 || !closed {
		t.Errorf("%d records, %d lost, closed %v, %v", len(recs), lost, closed, err)
	}
}

// Names beyond the bound share one.
func TestMethodBound(t *testing.T) {
	p := profilerFor(t, Config{Methods: 3})
	a, b, c, d, e := p.Method("a"), p.Client("a"), p.Method("c"), p.Method("d"), p.Client("e")
	if a == b || a == c || c.Name() != "c" || d.Name() != "_other" || e.Name() != "_other" || d == e || p.Method("a") != a {
		t.Errorf("%q %q %q %q %q", a.Name(), b.Name(), c.Name(), d.Name(), e.Name())
	}
	// A very large bound fits the file all the same.
	big := profilerFor(t, Config{Methods: math.MaxInt, CallsInFlight: math.MaxInt32})
	full(big, big.Method("a"), nil, nil, [6]int64{1, 2, 3, 4, 5, 6})
	if s := big.Snapshot(); len(s.Methods) != 1 || s.Methods[0].Total.Count != 1 {
		t.Errorf("%+v: %v", s, big.Err())
	}
}

func TestCallAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	p := profilerFor(t, Config{})
	m, conn, w := p.Method("m"), p.Conn(nil), p.Queue().Worker()
	defer w.Close()
	if n := testing.AllocsPerRun(5000, func() {
		c := p.Begin(m, conn, Now())
		c.Start(w, Now())
		for s := Handler; s <= Sent; s++ {
			c.Stamp(s)
		}
		c.Release(Now())
		c.End(OK)
	}); n != 0 {
		t.Errorf("a call allocates %v times", n)
	}
}

type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

func TestConn(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Skip(err)
	}
	defer nc.Close()
	p := profilerFor(t, Config{})
	a, b := p.Conn(nc), p.Conn(wrapped{nc})
	if a.cookie != b.cookie || a.cookie != cookieByKernel(t, nc) {
		t.Errorf("cookies %d and, below a wrapper, %d", a.cookie, b.cookie)
	}
	p.Conn((*net.TCPConn)(nil)).Close()
}
