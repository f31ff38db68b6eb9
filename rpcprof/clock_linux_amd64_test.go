package rpcprof

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

// stopClock leaves the counter alone from now on.
func stopClock() { atomic.StoreUint32(&useTSC, 0) }

// world is a counter and a kernel clock whose rate against it changes.
type world struct {
	real  float64 // ns of a clock that never changes its rate
	ns    float64 // the kernel's
	ppm   float64
	ghz   float64
	shift uint64 // of the counter
	cost  float64
}

func (w *world) pass(ns float64)  { w.real += ns; w.ns += ns * (1 + w.ppm/1e6) }
func (w *world) counter() uint64  { return uint64(w.real*w.ghz) + w.shift }
func (w *world) read() uint64     { w.pass(w.cost); return w.counter() }
func (w *world) mono() int64      { w.pass(w.cost); return int64(w.ns) }
func (w *world) clock() *tscClock { return &tscClock{read: w.read, mono: w.mono} }

// now does as Now does.
func (c *tscClock) now() int64 {
	if ns, ok := c.at(c.read()); ok {
		return ns
	}
	return c.renew()
}

func check(t *testing.T, w *world, c *tscClock) {
	t.Helper()
	if off := c.now() - int64(w.ns); off > 1000 || off < -1000 {
		t.Fatalf("at %.0f ns the clock is off by %d ns", w.ns, off)
	}
}

// Now keeps within 1 µs of the kernel's clock while that is slewed by as much as
// NTP does, from one end to the other in one step.
func TestClockSlew(t *testing.T) {
	for _, ghz := range []float64{1, 2.7, 5} {
		rnd := rand.New(rand.NewPCG(3, 4))
		w := &world{ns: 5e9, ghz: ghz, shift: 1 << 40, cost: 30}
		c := w.clock()
		fast := 0
		for range 500_000 {
			if rnd.IntN(500) == 0 {
				w.ppm = []float64{-500, 500, 0, rnd.Float64()*1000 - 500}[rnd.IntN(4)]
			}
			w.cost = 5 + 60*rnd.Float64()
			if rnd.IntN(100) == 0 {
				w.cost = 20_000 // preempted between readings
				check20(t, w, c)
				continue
			}
			before := c.current.Load()
			check(t, w, c)
			if c.current.Load() == before {
				fast++
			}
			w.pass(rnd.ExpFloat64() * 10_000)
		}
		if fast < 400_000 {
			t.Errorf("%v GHz: only %d of 500,000 readings used the counter", ghz, fast)
		}
	}
}

// check20 reads the clock in steps that take 20 µs each: its time is one within
// the call.
func check20(t *testing.T, w *world, c *tscClock) {
	t.Helper()
	from := int64(w.ns)
	at := c.now()
	if at < from-1000 || at > int64(w.ns)+1000 {
		t.Fatalf("%d is not within [%d, %d]", at, from, int64(w.ns))
	}
}

// Neither a counter that leaps nor one that is set back leads astray for longer
// than an anchor lives, and the counter is used again afterwards.
func TestClockLeaps(t *testing.T) {
	w := &world{ns: 5e9, ghz: 2, shift: 1 << 50, cost: 20}
	c := w.clock()
	run := func() {
		for range 2000 {
			w.pass(5_000)
			check(t, w, c)
		}
		if _, ok := c.at(c.read()); !ok {
			t.Fatal("the counter is not used")
		}
	}
	run()
	w.pass(maxAge)
	w.shift += 1 << 33 // as if the machine was suspended and the counter ran on
	run()
	w.pass(maxAge)
	w.shift = 0 // as if it was reset
	run()
	w.pass(10e9) // nobody asked for a while
	run()
}

// A pair whose readings were torn apart is not made an anchor, not even the first.
func TestClockInterrupted(t *testing.T) {
	w := &world{ns: 5e9, ghz: 3, cost: 1_000_000}
	c := w.clock()
	for range 100 {
		c.now()
	}
	if n := c.current.Load(); n != 0 {
		t.Fatalf("%d anchors", n)
	}
	w.cost = 20
	for range 1000 {
		w.pass(3_000)
		check(t, w, c)
	}
}

// The clock agrees with the kernel's.
func TestNow(t *testing.T) {
	startClock()
	for range 200_000 {
		before := nanotime()
		now := Now()
		if after := nanotime(); now < before-1000 || now > after+1000 {
			t.Fatalf("%d is not within [%d, %d]", now, before, after)
		}
	}
}
