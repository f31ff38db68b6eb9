package prometheus

import (
	"strings"
	"testing"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rpcprof/toolkit/rpcprof"
)

// record makes one call whose handler took a known time.
func record(p *rpcprof.Profiler, method string, handler time.Duration) {
	at := rpcprof.Now()
	c := p.Begin(p.Method(method), nil, at)
	c.Start(nil, at)
	c.StampAt(rpcprof.Handler, at)
	c.StampAt(rpcprof.Handled, at+int64(handler))
	c.StampAt(rpcprof.Write, at+int64(handler))
	c.StampAt(rpcprof.Sent, at+int64(handler))
	c.End(rpcprof.OK)
}

// Counts, sums and cumulative buckets are exact.
func TestCollector(t *testing.T) {
	p := rpcprof.New(rpcprof.Config{})
	defer p.Close()
	for _, d := range []time.Duration{10 * time.Microsecond, 16384, 20 * time.Millisecond, time.Minute} {
		record(p, "a.A/Get", d)
	}
	reg := prom.NewPedanticRegistry()
	reg.MustRegister(NewCollector(p))
	got, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, f := range got {
		if f.GetName() != CallDuration {
			continue
		}
		found = true
		h := f.GetMetric()[0].GetHistogram()
		if h.GetSampleCount() != 4 {
			t.Errorf("%d calls, want 4", h.GetSampleCount())
		}
		if want := (10*time.Microsecond + 16384 + 20*time.Millisecond + time.Minute).Seconds(); h.GetSampleSum() != want {
			t.Errorf("sum is %v, want %v", h.GetSampleSum(), want)
		}
		at := func(bound time.Duration) uint64 {
			for _, b := range h.GetBucket() {
				if b.GetUpperBound() == bound.Seconds() {
					return b.GetCumulativeCount()
				}
			}
			t.Fatalf("no bucket up to %v", bound)
			return 0
		}
		for bound, want := range map[time.Duration]uint64{16384: 1, 32768: 2, 16384 << 10: 2, 16384 << 11: 3, bounds[len(bounds)-1]: 3} {
			if n := at(bound); n != want {
				t.Errorf("%d calls up to %v, want %d", n, bound, want)
			}
		}
	}
	if !found {
		t.Errorf("no %s", CallDuration)
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	if n := testutil.CollectAndCount(NewCollector(p), StageDuration); n != 5 {
		t.Errorf("%d stage histograms, want 5", n)
	}
}

// A service without a Profiler can still register the collector.
func TestNoProfiler(t *testing.T) {
	err := testutil.CollectAndCompare(NewCollector(nil), strings.NewReader(`
# HELP rpcprof_lost_calls_total Calls that could not be recorded.
# TYPE rpcprof_lost_calls_total counter
rpcprof_lost_calls_total 0
`))
	if err != nil {
		t.Error(err)
	}
}
