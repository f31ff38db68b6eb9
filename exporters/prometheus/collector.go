package prometheus

import (
	"time"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/rpcprof/toolkit/rpcprof"
)

// Names of the metrics. The call's duration is OTel's rpc.server.call.duration
// (semantic conventions for RPC metrics), as Prometheus spells it.
const (
	CallDuration  = "rpc_server_call_duration_seconds"
	StageDuration = "rpcprof_stage_duration_seconds"
	LostCalls     = "rpcprof_lost_calls_total"
)

var (
	callDesc  = prom.NewDesc(CallDuration, "Time from the complete request to the written reply.", []string{"rpc_method"}, nil)
	stageDesc = prom.NewDesc(StageDuration, "Time calls spent in one stage.", []string{"method", "stage"}, nil)
	lostDesc  = prom.NewDesc(LostCalls, "Calls that could not be recorded.", nil, nil)
)

// Bounds of the classic buckets: powers of two of 16 µs, up to 34 s. Each is also a
// bound of the Profiler's own buckets, so that the counts are exact.
var bounds = func() []time.Duration {
	var out []time.Duration
	for d := 16 * 1024 * time.Nanosecond; d < 40*time.Second; d *= 2 {
		out = append(out, d)
	}
	return out
}()

// NewCollector gives a collector over a Profiler, which may be nil.
func NewCollector(p *rpcprof.Profiler) prom.Collector { return collector{p} }

type collector struct{ p *rpcprof.Profiler }

func (c collector) Describe(ch chan<- *prom.Desc) {
	ch <- callDesc
	ch <- stageDesc
	ch <- lostDesc
}

func (c collector) Collect(ch chan<- prom.Metric) {
	s := c.p.Snapshot()
	for _, m := range s.Methods {
		ch <- histogram(callDesc, m.Total, m.Method)
		for stage, h := range m.Stages {
			ch <- histogram(stageDesc, h, m.Method, stage)
		}
	}
	ch <- prom.MustNewConstMetric(lostDesc, prom.CounterValue, float64(s.Lost))
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
	put(1 << 62)
	return prom.MustNewConstHistogram(d, h.Count, h.Sum.Seconds(), buckets, labels...)
}
