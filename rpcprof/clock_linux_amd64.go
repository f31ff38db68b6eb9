package rpcprof

import (
	"bytes"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"
)

func rdtsc() uint64

func tscNow() int64

// The clock reads the time stamp counter and converts it with an anchor, a pair
// of both clocks read together, that is at most maxAge old. What it can be wrong
// by is the sum of
//   - what the kernel's clock changes its rate by between the time over which the
//     rate was taken and now: 1,000 ppm, from one end of what NTP slews to the
//     other, over maxAge is 0.4 µs;
//   - half of maxWidth, within which the anchor's two readings lie, and that for
//     each of the two anchors of the rate, times maxAge/minRate: 0.5 µs.
const (
	maxAge     = 400_000 // ns
	minRate    = 200_000 // ns between the anchors that a rate is taken from
	maxWidth   = 200     // ns that reading a pair may take
	maxGap     = 1 << 31 // ns after which no rate is taken; also keeps the sums in 64 bits
	anchorRing = 64      // anchors kept, so that a reader that was delayed notices
)

type anchor struct {
	tsc  atomic.Uint64
	ns   atomic.Int64
	mult atomic.Uint64 // ns per tick << 32; 0: not known yet
	age  atomic.Uint64 // ticks for which it may be used; 0: not at all
}

type tscClock struct {
	anchors [anchorRing]anchor
	current atomic.Uint64
	busy    atomic.Uint32
	read    func() uint64
	mono    func() int64
}

var (
	clock = tscClock{read: rdtsc, mono: nanotime}
	// The counter is used only where it runs at one rate on all CPUs, always, and
	// is what the kernel's own clock is made from.
	tscUsable = sync.OnceValue(func() bool {
		src, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
		if err != nil || string(bytes.TrimSpace(src)) != "tsc" {
			return false
		}
		info, err := os.ReadFile("/proc/cpuinfo")
		return err == nil && bytes.Contains(info, []byte(" constant_tsc")) && bytes.Contains(info, []byte(" nonstop_tsc"))
	})
	useTSC uint32 // set by New; tscNow reads its first byte
)

// The assembly knows where these stand.
var (
	_ [anchorRing*32 - unsafe.Offsetof(tscClock{}.current)]struct{}
	_ [unsafe.Offsetof(tscClock{}.current) - anchorRing*32]struct{}
)

func startClock() {
	if tscUsable() {
		atomic.StoreUint32(&useTSC, 1)
	}
}

// Now is the time of a stamp: CLOCK_MONOTONIC in nanoseconds, within 1 µs. It
// costs little more than to read the time stamp counter, where that can be used.
func Now() int64 {
	if ns := tscNow(); ns != 0 {
		return ns
	}
	return slowNow()
}

func slowNow() int64 {
	if atomic.LoadUint32(&useTSC) == 0 {
		return nanotime()
	}
	return clock.renew()
}

// at converts a reading of the counter; false where the anchor is too old for it.
func (c *tscClock) at(t uint64) (int64, bool) {
	i := c.current.Load()
	a := &c.anchors[i%anchorRing]
	d := t - a.tsc.Load() // huge where t is earlier: then it is over the age
	ns := a.ns.Load() + int64(d*a.mult.Load()>>32)
	return ns, d < a.age.Load() && c.current.Load()-i < anchorRing/2
}

// renew reads the kernel's clock and, unless another does so or the reading was
// interrupted, makes a new anchor of it.
func (c *tscClock) renew() int64 {
	before := c.mono()
	tsc := c.read()
	after := c.mono()
	if uint64(after-before) <= maxWidth && c.busy.CompareAndSwap(0, 1) {
		c.add(tsc, before+(after-before)/2)
		c.busy.Store(0)
	}
	return after
}

// add makes a pair the current anchor.
func (c *tscClock) add(tsc uint64, ns int64) {
	i := c.current.Load()
	old, a := &c.anchors[i%anchorRing], &c.anchors[(i+1)%anchorRing]
	dt, dns := int64(tsc-old.tsc.Load()), ns-old.ns.Load()
	mult := old.mult.Load()
	switch {
	case i == 0: // the first
	case dns < minRate && mult == 0, dns <= 0:
		return // too early for a rate, or another made an anchor meanwhile
	case dt <= 0:
		if dns < minRate {
			return
		}
		mult = 0 // the counter was set back: begin again
	case dns >= minRate && dns < maxGap:
		rate := uint64(dns) << 32 / uint64(dt)
		// No slewing changes the rate by 1/256: one of the clocks has stood still
		// or leapt, as in a suspended machine.
		if mult != 0 && max(rate, mult)-min(rate, mult) > mult/256 {
			rate = 0
		}
		mult = rate
	}
	a.tsc.Store(tsc)
	a.ns.Store(ns)
	a.mult.Store(mult)
	if mult != 0 {
		a.age.Store(maxAge << 32 / mult)
	} else {
		a.age.Store(0)
	}
	c.current.Store(i + 1)
}
