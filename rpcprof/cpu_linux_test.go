//go:build amd64 || arm64

package rpcprof

import (
	"runtime"
	"testing"
	"time"
)

// The CPU time of a call is measured where it ran on, and only there.
func TestThreadCPU(t *testing.T) {
	p := profilerFor(t, Config{})
	if p.off == nil || p.off.gLeft == 0 {
		t.Skip("it is not known when a goroutine leaves its thread")
	}
	r := readerOf(t, p)
	m := p.Method("m")
	spin := func(d time.Duration) time.Duration {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		from := threadCPU()
		for time.Duration(threadCPU()-from) < d {
		}
		return time.Duration(threadCPU() - from)
	}
	measure := func(handler func()) int64 {
		c := p.Begin(m, nil, 0)
		c.Start(nil, 0)
		c.startCPU()
		handler()
		c.End(OK)
		return records(t, r, 1)[0].ThreadCPU
	}
	const want = 2 * time.Millisecond
	measured, withheld := 0, 0
	for range 50 {
		switch got := time.Duration(measure(func() { spin(want) })); {
		case got == 0: // preempted
		case got < want || got > want+want/4:
			t.Errorf("a handler that ran for %v took %v", want, got)
		default:
			measured++
		}
		if measure(func() {
			done := make(chan bool)
			go func() { spin(want / 10); done <- true }()
			time.Sleep(time.Microsecond) // where the other is done already, there is no waiting for it
			<-done
		}) == 0 {
			withheld++
		}
	}
	if measured < 10 || withheld != 50 {
		t.Errorf("of 50, %d measured; of 50 that waited, %d withheld", measured, withheld)
	}
	// And one call in so many without being asked.
	n := 0
	for range 10_000 {
		c := p.Begin(m, nil, 0)
		c.Start(nil, 0)
		if c.cpu != 0 {
			n++
		}
		c.End(OK)
	}
	if every := int(p.seg.Header.CPUEvery); n < 10_000/every/2 || n > 10_000/every*2 {
		t.Errorf("%d of 10,000 calls were measured, one in %d should be", n, every)
	}
}
