package rpcprof

import (
	"fmt"
	"testing"
)

var (
	traceID = [16]byte{1}
	spanID  = [8]byte{2}
)

// one records a call with all that the library takes, every stamp read from the
// clock for itself.
func one(p *Profiler, m *Method, conn *Conn, q *Queue, w *Role) {
	c := p.Begin(m, conn, 0)
	arrived(c, q)
	served(p, c, w)
}

// arrived is what a reader says of a call.
func arrived(c *Call, q *Queue) {
	c.Request(64, 0, 1, 0, 1)
	c.Enqueue(q)
	c.Trace(traceID, spanID)
}

// served is what a worker does with it that writes its reply itself.
func served(p *Profiler, c *Call, w *Role) {
	c.Start(w, 0)
	c.Stamp(Handler)
	c.Stamp(Handled)
	c.Reply(64)
	c.Stamp(Write)
	sent := p.Now()
	c.StampAt(Sent, sent)
	c.Release(sent)
	c.End(OK)
}

func recordFull(b *testing.B, p *Profiler, methods int) {
	ms := make([]*Method, methods)
	for i := range ms {
		ms[i] = p.Method(fmt.Sprintf("bench.Bench/Call%d", i))
	}
	conn := p.Conn(nil)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		q := p.Queue()
		w := q.Worker()
		defer w.Close()
		for i := 0; pb.Next(); {
			one(p, ms[i], conn, q, w)
			if i++; i == methods {
				i = 0
			}
		}
	})
}

// The whole record, every stamp read from the clock for itself.
func BenchmarkRecordFull(b *testing.B) {
	p := New(Config{})
	defer p.Close()
	recordFull(b, p, 1)
}

// The same with the runtime's clock, as where the time stamp counter cannot be used.
func BenchmarkRecordFullNanotime(b *testing.B) {
	p := New(Config{})
	defer p.Close()
	defer startClock()
	stopClock()
	recordFull(b, p, 1)
}

// The same with 64 methods in turn, whose histograms compete for the caches.
func BenchmarkRecordFull64Methods(b *testing.B) {
	p := New(Config{})
	defer p.Close()
	recordFull(b, p, 64)
}

// What remains of the whole record when it is switched off, and without a Profiler.
func BenchmarkRecordOff(b *testing.B) {
	b.Setenv("RPCPROF", "off")
	recordNothing(b, New(Config{}))
}

func BenchmarkRecordNil(b *testing.B) { recordNothing(b, nil) }

// recordNothing does without the workers that the real ones need.
func recordNothing(b *testing.B, p *Profiler) {
	m, conn, q := p.Method("bench.Bench/Call"), p.Conn(nil), p.Queue()
	w := q.Worker()
	b.ReportAllocs()
	for b.Loop() {
		one(p, m, conn, q, w)
	}
}

// Eight requests cut from one read, and their replies written in one flush: they
// share the stamps that are one instant.
func BenchmarkRecordBatch8(b *testing.B) {
	const batch = 8
	p := New(Config{})
	defer p.Close()
	m, conn := p.Method("bench.Bench/Call"), p.Conn(nil)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		q := p.Queue()
		w := q.Worker()
		defer w.Close()
		var calls [batch]*Call
		for n := batch; n == batch; {
			recv := p.Now()
			for n = 0; n < batch && pb.Next(); n++ {
				c := p.Begin(m, conn, recv)
				c.Request(64, 0, 1, n, batch)
				c.Enqueue(q)
				c.Trace(traceID, spanID)
				calls[n] = c
			}
			for _, c := range calls[:n] {
				c.Start(w, 0)
				c.Stamp(Handler)
				handled := p.Now()
				c.StampAt(Handled, handled)
				c.Reply(64)
				c.Release(handled)
			}
			write := p.Now()
			for _, c := range calls[:n] {
				c.StampAt(Write, write)
			}
			sent := p.Now()
			for _, c := range calls[:n] {
				c.StampAt(Sent, sent)
				c.End(OK)
			}
		}
	})
}

// All 4,096 slots in use, calls taking turns.
func BenchmarkRecord4096InFlight(b *testing.B) {
	const n = 4096
	p := New(Config{})
	defer p.Close()
	m, conn := p.Method("bench.Bench/Call"), p.Conn(nil)
	q := p.Queue()
	w := q.Worker()
	defer w.Close()
	ring := make([]*Call, n-64)
	for i := range ring {
		ring[i] = p.Begin(m, conn, 0)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c := ring[i%len(ring)]
		arrived(c, q)
		served(p, c, w)
		ring[i%len(ring)] = p.Begin(m, conn, 0)
	}
}

// A call begun by one goroutine and ended by another: what the channel between
// them costs is in BenchmarkHandover.
func BenchmarkRecordHandedOver(b *testing.B) {
	p := New(Config{})
	defer p.Close()
	m, conn, q := p.Method("bench.Bench/Call"), p.Conn(nil), p.Queue()
	handOver(b, func() *Call {
		c := p.Begin(m, conn, 0)
		arrived(c, q)
		return c
	}, q.Worker, func(w *Role, c *Call) { served(p, c, w) })
}

func BenchmarkHandover(b *testing.B) {
	c := new(Call)
	handOver(b, func() *Call { return c }, func() *Role { return nil }, func(*Role, *Call) {})
}

func handOver(b *testing.B, begin func() *Call, worker func() *Role, end func(*Role, *Call)) {
	ch := make(chan *Call, 128)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w := worker()
		defer w.Close()
		for c := range ch {
			end(w, c)
		}
	}()
	b.ReportAllocs()
	for b.Loop() {
		ch <- begin()
	}
	close(ch)
	<-done
}

// The clock of a stamp, and the runtime's that it replaces where it can.
func BenchmarkNow(b *testing.B) {
	startClock()
	for b.Loop() {
		_ = Now()
	}
}

func BenchmarkNanotime(b *testing.B) {
	for b.Loop() {
		_ = nanotime()
	}
}
