package profile

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

const ms = int64(1_000_000)

// served makes a finished call whose stages have the given lengths.
func served(id uint64, method uint32, recv int64, queue, handler int64, worker uint32) Call {
	d := recv + queue
	return Call{
		ID: id, Method: method, Outcome: segment.OK, Queue: 1, Worker: worker, Workers: 2, Offset: segment.NoOffset,
		Stamps:  [segment.Stamps]int64{recv, d, d, d + handler, d + handler, d + handler + 1000},
		Release: d + handler,
	}
}

func stage(p *Profile, method int, name string) map[string]int64 {
	return p.Methods[method].Slow.Stages[name].Causes
}

// With both workers held, a call in the queue is behind the calls that hold them;
// with one of them free it is not.
func TestBehind(t *testing.T) {
	e := &Evidence{
		Window: Window{1, 100 * ms}, Methods: []string{"Fast", "Slow"},
		Roles: []Role{{Slot: 10, Kind: segment.KindWorker, Queue: 1}, {Slot: 11, Kind: segment.KindWorker, Queue: 1}},
		Calls: []Call{
			served(1, 1, 10*ms, 0, 20*ms, 10),
			served(2, 1, 14*ms, 0, 16*ms, 11),
			served(3, 0, 12*ms, 18*ms, ms, 10), // 12..14 one worker is free, 14..30 none
		},
	}
	p := Join(e, Options{SLONS: 1})
	got := stage(p, 1, "queue")
	if p.Methods[1].Method != "Fast" {
		got = stage(p, 0, "queue")
	}
	if got["behind"] != 16*ms || got["unknown"] != 2*ms {
		t.Errorf("queue is %v, want 16 ms behind and 2 ms unknown", got)
	}
	for _, m := range p.Methods {
		for _, d := range m.Slow.Details {
			if d.Cause == Behind && d.Culprit != "Slow" {
				t.Errorf("culprit is %q", d.Culprit)
			}
		}
	}
}

// A call that has not ended holds its worker all the same.
func TestBehindUnfinished(t *testing.T) {
	hung := Call{ID: 1, Method: 1, Outcome: segment.Unfinished, Queue: 1, Worker: 10, Stamps: [segment.Stamps]int64{5 * ms, 6 * ms, 6 * ms}}
	e := &Evidence{
		Window: Window{1, 100 * ms}, Methods: []string{"Fast", "Hung"},
		Roles: []Role{{Slot: 10, Kind: segment.KindWorker, Queue: 1}},
		Calls: []Call{hung, {ID: 2, Method: 0, Outcome: segment.Unfinished, Queue: 1, Stamps: [segment.Stamps]int64{20 * ms}}},
	}
	p := Join(e, Options{SLONS: 1})
	for i, m := range p.Methods {
		if m.Method == "Fast" {
			if got := stage(p, i, "queue"); got["behind"] != 80*ms {
				t.Errorf("queue is %v, want 80 ms behind", got)
			}
		}
	}
	if len(p.InFlight) != 2 || p.InFlight[0].Stage != "handler" || p.InFlight[1].Stage != "queue" {
		t.Errorf("in flight: %+v", p.InFlight)
	}
}

// Where intervals overlap an interrupt wins over the run queue, that over blocking;
// what is left is divided by the samples that fell into it, and into it alone.
func TestOrderAndSamples(t *testing.T) {
	call := Owner{Call: 1, Kind: segment.KindCall}
	e := &Evidence{
		Window: Window{1, 100 * ms}, Methods: []string{"M"},
		Calls: []Call{served(1, 0, 10*ms, 0, 40*ms, 0)},
		Intervals: []Interval{
			{Owner: call, Start: 10 * ms, End: 20 * ms, Cause: BlockDisk, Stack: -1},
			{Owner: call, Start: 15 * ms, End: 25 * ms, Cause: RunQueue, Culprit: "hog", Stack: -1},
			{Owner: call, Start: 16 * ms, End: 17 * ms, Cause: IRQ, Culprit: "timer", Stack: -1},
		},
		Samples: []Sample{
			{Owner: call, At: 12 * ms, Cause: CPUKernel, Stack: -1}, // explained exactly, so it does not count
			{Owner: call, At: 30 * ms, Cause: GoLock, Stack: -1},
			{Owner: call, At: 35 * ms, Cause: GoLock, Stack: -1},
			{Owner: call, At: 40 * ms, Cause: GoLock, Stack: -1},
			{Owner: call, At: 45 * ms, Cause: CPUUser, Stack: -1},
		},
	}
	p := Join(e, Options{SLONS: 1})
	want := map[string]int64{"block.disk": 5 * ms, "runq": 9 * ms, "irq": ms, "go.lock": 25 * ms * 3 / 4, "cpu.user": 25 * ms / 4}
	if got := stage(p, 0, "handler"); !reflect.DeepEqual(got, want) {
		t.Errorf("handler is %v, want %v", got, want)
	}
	if s := p.Methods[0].Slow.Stages["handler"]; s.Samples != 4 || s.CI95NS["go.lock"] == 0 {
		t.Errorf("%d samples, interval %v", s.Samples, s.CI95NS)
	}
}

// arrive is the first data-ready with more bytes received than the request's offset.
func TestArrive(t *testing.T) {
	c := served(1, 0, 50*ms, 0, ms, 0)
	c.Conn, c.Offset = 7, 128
	e := &Evidence{
		Window: Window{1, 100 * ms}, Methods: []string{"M"}, Cookies: map[uint32]uint64{7: 99}, Calls: []Call{c},
		Arrivals: []Arrival{{99, 20 * ms, 64}, {99, 30 * ms, 128}, {99, 40 * ms, 192}, {99, 45 * ms, 256}, {98, 5 * ms, 999}},
	}
	p := Join(e, Options{SLONS: 1})
	if got := p.Methods[0].Slow.Stages["recv"].WallNS; got != 10*ms {
		t.Errorf("recv is %d ns, want 10 ms", got)
	}
}

// A stamp that was not taken makes one stage of two, named after both.
func TestMissingStamp(t *testing.T) {
	c := served(1, 0, 10*ms, 2*ms, 3*ms, 0)
	c.Stamps[segment.Dequeue] = 0
	p := Join(&Evidence{Window: Window{1, 100 * ms}, Methods: []string{"M"}, Calls: []Call{c}}, Options{SLONS: 1})
	if _, ok := p.Methods[0].Slow.Stages["queue+decode"]; !ok {
		t.Errorf("stages are %v", p.Methods[0].Slow.Stages)
	}
}

// random makes evidence of any shape, with overlaps, calls cut by the window and
// intervals of nobody.
func random(r *rand.Rand) *Evidence {
	e := &Evidence{Window: Window{100 * ms, 200 * ms}, Methods: []string{"A", "B", "C"}, Stacks: []Stack{{{Func: "x.Y", File: "y.go", Line: 3}}}, Cookies: map[uint32]uint64{1: 5}}
	causes := []Cause{CPUUser, CPUKernel, RunQueue, IRQ, SoftIRQ, BlockDisk, BlockLock, GoLock, GoSched, GoSleep}
	for s := uint32(10); s < 14; s++ {
		e.Roles = append(e.Roles, Role{Slot: s, Kind: segment.Kind(2 + r.IntN(3)), Conn: 1, Queue: 1})
	}
	for i := range 60 {
		c := Call{ID: uint64(i + 1), Method: uint32(r.IntN(4)), Outcome: segment.Outcome(r.IntN(int(segment.Outcomes))), Conn: 1, Queue: uint32(r.IntN(2)),
			Worker: 10 + uint32(r.IntN(4)), Workers: 2, Offset: uint64(i * 64)}
		t := 90*ms + r.Int64N(110*ms)
		for s := range c.Stamps {
			if s == 0 || r.IntN(6) > 0 {
				c.Stamps[s] = t
			}
			t += r.Int64N(4 * ms)
		}
		if r.IntN(2) == 0 {
			c.Release = c.Stamps[0] + r.Int64N(10*ms)
		}
		e.Calls = append(e.Calls, c)
	}
	for range 200 {
		o := Owner{Call: uint64(r.IntN(70)), Slot: 10 + uint32(r.IntN(4)), Kind: segment.Kind(r.IntN(5)), Conn: 1}
		a := 80*ms + r.Int64N(130*ms)
		e.Intervals = append(e.Intervals, Interval{Owner: o, Start: a, End: a + r.Int64N(5*ms) - ms, Cause: causes[r.IntN(len(causes))], Culprit: "x", Stack: int32(r.IntN(2) - 1)})
		e.Samples = append(e.Samples, Sample{Owner: o, At: a, Cause: causes[r.IntN(len(causes))], Stack: int32(r.IntN(2) - 1)})
		e.Arrivals = append(e.Arrivals, Arrival{5, a, uint64(r.IntN(60 * 64))})
	}
	return e
}

// Whatever the evidence: causes add up to their stage and stages to the wall time,
// nothing is negative, the cells are the whole time, and the order of the input
// does not matter.
func TestProperties(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		e := random(r)
		p := Join(e, Options{})
		for _, m := range p.Methods {
			for _, s := range []Set{m.Typical, m.Slow} {
				var stages, details int64
				for name, st := range s.Stages {
					var sum int64
					for c, ns := range st.Causes {
						if ns < 0 {
							t.Fatalf("seed %d: %s %s is %d", seed, name, c, ns)
						}
						sum += ns
					}
					if sum != st.WallNS {
						t.Fatalf("seed %d: %s adds up to %d of %d", seed, name, sum, st.WallNS)
					}
					stages += st.WallNS
				}
				for _, d := range s.Details {
					details += d.NS
				}
				if stages != s.WallNS || details != s.WallNS {
					t.Fatalf("seed %d: stages %d and details %d of %d", seed, stages, details, s.WallNS)
				}
			}
		}
		for _, c := range p.Cells {
			if c.NS <= 0 || c.Calls <= 0 {
				t.Fatalf("seed %d: cell %+v", seed, c)
			}
		}
		if p.Coverage < 0 || p.Coverage > 1 {
			t.Fatalf("seed %d: coverage %v", seed, p.Coverage)
		}
		r.Shuffle(len(e.Calls), func(i, k int) { e.Calls[i], e.Calls[k] = e.Calls[k], e.Calls[i] })
		r.Shuffle(len(e.Intervals), func(i, k int) { e.Intervals[i], e.Intervals[k] = e.Intervals[k], e.Intervals[i] })
		r.Shuffle(len(e.Samples), func(i, k int) { e.Samples[i], e.Samples[k] = e.Samples[k], e.Samples[i] })
		r.Shuffle(len(e.Arrivals), func(i, k int) { e.Arrivals[i], e.Arrivals[k] = e.Arrivals[k], e.Arrivals[i] })
		again := Join(e, Options{})
		if !reflect.DeepEqual(p.Methods, again.Methods) || !reflect.DeepEqual(p.Slowest, again.Slowest) || !reflect.DeepEqual(p.Cells, again.Cells) {
			t.Fatalf("seed %d: the order of the input matters", seed)
		}
	}
}

// A wait behind more pieces than it is cut into has the same amounts.
func TestBehindManyPieces(t *testing.T) {
	e := &Evidence{Window: Window{1, 1000 * ms}, Methods: []string{"A", "B", "W"}, Roles: []Role{{Slot: 10, Kind: segment.KindWorker, Queue: 1}}}
	for i := range int64(1000) {
		c := served(uint64(i+1), uint32(i%2), 10*ms+i*100_000, 0, 60_000+i%2*20_000, 10)
		c.Workers = 1
		e.Calls = append(e.Calls, c)
	}
	w := served(5000, 2, 10*ms, 100*ms, ms, 10)
	w.Workers = 1
	e.Calls = append(e.Calls, w)
	p := Join(e, Options{SLONS: 1})
	for _, m := range p.Methods {
		if m.Method != "W" {
			continue
		}
		if got := m.Slow.Stages["queue"].Causes; got["behind"] != 70*ms || got["unknown"] != 30*ms {
			t.Errorf("queue is %v, want 70 ms behind and 30 ms unknown", got)
		}
		for _, d := range m.Slow.Details {
			if want := map[string]int64{"A": 30 * ms, "B": 40 * ms}[d.Culprit]; d.Cause == Behind && d.NS != want {
				t.Errorf("behind %s for %d ns, want %d", d.Culprit, d.NS, want)
			}
		}
	}
}

// An overloaded service: thousands of calls, each waiting behind thousands.
func BenchmarkJoinOverload(b *testing.B) {
	e := &Evidence{Window: Window{1, 20_000 * ms}, Methods: []string{"A", "B"}, Roles: []Role{{Slot: 10, Kind: segment.KindWorker, Queue: 1}, {Slot: 11, Kind: segment.KindWorker, Queue: 1}}}
	for i := range int64(20_000) {
		start := 10*ms + i/2*200_000
		c := served(uint64(i+1), uint32(i%3/2), start-min(start-5*ms, 900*ms), min(start-5*ms, 900*ms), 200_000, 10+uint32(i%2))
		e.Calls = append(e.Calls, c)
	}
	for b.Loop() {
		Join(e, Options{})
	}
}
