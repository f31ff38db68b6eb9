package rpcprof

import (
	"sync"
	"sync/atomic"
	"testing"
)

// Goroutines come and go by the hundred thousand, each serving one call: none is
// left in the index, and none finds it full.
func TestGoroutineChurn(t *testing.T) {
	const n = 100_000
	p := profilerFor(t, Config{})
	m := p.Method("m")
	var wg sync.WaitGroup
	gate := make(chan bool, 64)
	for range n {
		gate <- true
		wg.Go(func() {
			c := p.Begin(m, nil, 0)
			c.Start(nil, 0)
			c.Stamp(Handler)
			c.End(OK)
			<-gate
		})
	}
	wg.Wait()
	if s := p.Snapshot(); s.Lost != 0 || s.Methods[0].Total.Count != n {
		t.Errorf("%d lost, %d recorded", s.Lost, s.Methods[0].Total.Count)
	}
	if full := atomic.LoadUint64(&p.seg.Header.NoIdx); full != 0 {
		t.Errorf("%d goroutines found the index full", full)
	}
	for i := range p.seg.Index {
		for _, e := range p.seg.Index[i] {
			if e.G != 0 {
				t.Fatalf("goroutine %x is still in the index", e.G)
			}
		}
	}
}
