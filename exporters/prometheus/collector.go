package prometheus

import (
	"strconv"
	"time"
	"unicode/utf8"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/rpcprof/toolkit/rpcprof"
)

// Bounds of the classic buckets: 16.384 µs and each power of two of it up to 69 s.
// Each is also a bound of the Profiler's own buckets, so that the counts are exact;
// a duration of just a bound counts as longer than it.
const (
	firstBound = 1 << 14 * time.Nanosecond
	lastBound  = 1 << 36 * time.Nanosecond
)

var bounds = func() []time.Duration {
	var out []time.Duration
	for d := firstBound; d <= lastBound; d *= 2 {
		out = append(out, d)
	}
	return out
}()

// NewCollector gives a collector over a Profiler, which may be nil.
func NewCollector(p *rpcprof.Profiler) prom.Collector { return collector{p} }

type collector struct{ p *rpcprof.Profiler }

func (c collector) Describe(ch chan<- *prom.Desc) {
	ch <- callDesc
	ch <- clientDesc
	ch <- stageDesc
	ch <- clientStageDesc
	ch <- lostDesc
}

func (c collector) Collect(ch chan<- prom.Metric) {
	s := c.p.Snapshot()
	for _, m := range s.Methods {
		name := label(m.Method)
		call, perStage := callDesc, stageDesc
		switch m.Side {
		case "server":
		case "client":
			call, perStage = clientDesc, clientStageDesc
		default:
			continue // parts of handlers
		}
		ch <- histogram(call, m.Total, name)
		for stage, h := range m.Stages {
			ch <- histogram(perStage, h, name, stage)
		}
	}
	ch <- prom.MustNewConstMetric(lostDesc, prom.CounterValue, float64(s.Lost))
}

// label makes a name fit for a label, which must be UTF-8: the Profiler takes any
// bytes for a name, and cuts a long one anywhere. One bad name would otherwise
// spoil the whole scrape.
func label(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return strconv.Quote(name)
}

// histogram adds the fine buckets up into the classic ones.
func histogram(d *prom.Desc, h rpcprof.Histogram, labels ...string) prom.Metric {
	buckets := make(map[float64]uint64, len(bounds))
	var sum uint64
	i := 0
	put := func(upTo time.Duration) {
		for i < len(bounds) && bounds[i] <= upTo {
			buckets[bounds[i].Seconds()] = sum
			i++
		}
	}
	h.Each(func(lo, hi time.Duration, count uint64) {
		put(lo)
		sum += count
	})
	put(lastBound)
	return prom.MustNewConstHistogram(d, h.Count, h.Sum.Seconds(), buckets, labels...)
}
