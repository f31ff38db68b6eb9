package rpcprof

import "testing"

func recordFull(b *testing.B, p *Profiler) {
	m := p.Method("bench.Bench/Call")
	conn := p.Conn(nil)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		q := p.Queue()
		w := q.Worker()
		defer w.Close()
		for pb.Next() {
			c := p.Begin(m, conn, Now())
			c.Request(64, 0, 1, 0, 1)
			c.Enqueue(q)
			c.Start(w, Now())
			c.Stamp(Handler)
			c.Stamp(Handled)
			c.Reply(64)
			c.Stamp(Write)
			sent := Now()
			c.StampAt(Sent, sent)
			c.Release(sent) // a worker that writes its reply itself
			c.End(OK)
		}
	})
}

// The whole record, every stamp read from the clock for itself.
func BenchmarkRecordFull(b *testing.B) {
	p := New(Config{})
	defer p.Close()
	recordFull(b, p)
}

// What remains when no Profiler is there.
func BenchmarkRecordNil(b *testing.B) { recordFull(b, nil) }
