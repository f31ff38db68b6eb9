package prometheus

import (
	"strings"
	"testing"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// record makes one call whose handler took a known time.
func record(p *rpcprof.Profiler, method string, handler time.Duration) {
	recordStages(p, method, [5]time.Duration{2: handler})
}

// recordStages makes one call whose stages, from queue to write, took known times.
func recordStages(p *rpcprof.Profiler, method string, stages [5]time.Duration) {
	at := rpcprof.Now()
	c := p.Begin(p.Method(method), nil, at)
	for i, s := range []rpcprof.Stamp{rpcprof.Dequeue, rpcprof.Handler, rpcprof.Handled, rpcprof.Write, rpcprof.Sent} {
		at += int64(stages[i])
		c.StampAt(s, at)
	}
	c.End(rpcprof.OK)
}

// key names one histogram: its metric and its labels' values, in the labels' order.
func key(name string, labels ...string) string { return name + "/" + strings.Join(labels, "/") }

// scraped is one histogram as a scrape gives it; the buckets are cumulative.
type scraped struct {
	count   uint64
	sum     float64
	bounds  []float64
	buckets []uint64
}

// gather scrapes the histograms of a Profiler.
func gather(t *testing.T, p *rpcprof.Profiler) map[string]*scraped {
	t.Helper()
	reg := prom.NewPedanticRegistry()
	reg.MustRegister(NewCollector(p))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*scraped{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			h := m.GetHistogram()
			if h == nil {
				continue
			}
			got := &scraped{count: h.GetSampleCount(), sum: h.GetSampleSum()}
			for _, b := range h.GetBucket() {
				got.bounds = append(got.bounds, b.GetUpperBound())
				got.buckets = append(got.buckets, b.GetCumulativeCount())
			}
			out[key(f.GetName(), labels...)] = got
		}
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	return out
}

// Counts, sums and every cumulative bucket are exact, for the call and each stage.
func TestCollector(t *testing.T) {
	p := rpcprof.New(rpcprof.Config{})
	defer func() { _ = p.Close() }()
	calls := map[string][][5]time.Duration{
		"a.A/Get": {
			{0, 1, 10 * time.Microsecond, 3, 4},
			{firstBound - 1, 0, firstBound, 0, firstBound + 1},
			{time.Second, 5 * time.Microsecond, 20 * time.Millisecond, 0, 100 * time.Microsecond},
			{0, 0, time.Minute, 0, 0},
			{2 * lastBound, 0, lastBound, 0, 0},
		},
		"b.B/Put": {{0, 0, 3 * time.Millisecond, 0, 0}},
	}
	want := map[string][]time.Duration{}
	for method, cs := range calls {
		for _, c := range cs {
			recordStages(p, method, c)
			var total time.Duration
			for i, stage := range []string{"queue", "decode", "handler", "encode", "write"} {
				k := key(StageDuration, method, stage)
				want[k] = append(want[k], c[i])
				total += c[i]
			}
			k := key(CallDuration, method)
			want[k] = append(want[k], total)
		}
	}
	got := gather(t, p)
	if len(got) != len(want) {
		t.Errorf("%d histograms, want %d", len(got), len(want))
	}
	for k, durations := range want {
		h := got[k]
		if h == nil {
			t.Errorf("no %s", k)
			continue
		}
		var sum time.Duration
		for _, d := range durations {
			sum += d
		}
		if h.count != uint64(len(durations)) || h.sum != sum.Seconds() {
			t.Errorf("%s: %d calls of %v s, want %d of %v s", k, h.count, h.sum, len(durations), sum.Seconds())
		}
		if len(h.bounds) != len(bounds) {
			t.Fatalf("%s: %d buckets, want %d", k, len(h.bounds), len(bounds))
		}
		for i, n := range h.buckets {
			var below uint64
			for _, d := range durations {
				if d < bounds[i] {
					below++
				}
			}
			if h.bounds[i] != bounds[i].Seconds() || n != below {
				t.Errorf("%s: %d calls up to %v s, want %d below %v", k, n, h.bounds[i], below, bounds[i])
			}
		}
	}
}

// Every bound is one of the Profiler's own, which is why counts are exact.
func TestBounds(t *testing.T) {
	for _, b := range bounds {
		if lo, _ := segment.BucketBounds(segment.BucketFor(int64(b))); lo != int64(b) {
			t.Errorf("%v is within a bucket that begins at %v", b, time.Duration(lo))
		}
	}
}

// A name that is no label does not spoil the scrape, nor does one that was cut.
func TestNames(t *testing.T) {
	p := rpcprof.New(rpcprof.Config{})
	defer func() { _ = p.Close() }()
	long := strings.Repeat("é", 100)
	for _, name := range []string{"a\xff", "a\xfe", long, long + "!", "."} {
		record(p, name, time.Millisecond)
	}
	got := gather(t, p)
	for _, name := range []string{`"a\xff"`, `"a\xfe"`, "."} {
		if got[key(CallDuration, name)] == nil {
			t.Errorf("no call of %s in %v", name, got)
		}
	}
	var calls uint64
	for k, h := range got {
		if strings.HasPrefix(k, CallDuration) {
			calls += h.count
		}
	}
	if calls != 5 {
		t.Errorf("%d calls, want 5", calls)
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

// A call that is made has metrics of its own, also when its method is served here
// too; parts of handlers have none.
func TestClientSide(t *testing.T) {
	p := rpcprof.New(rpcprof.Config{})
	defer p.Close()
	record(p, "a.A/Get", time.Millisecond)
	c := p.BeginClient(t.Context(), p.Client("a.A/Get"), 0)
	at := rpcprof.Now()
	c.StampAt(rpcprof.Sent, at)
	c.StampAt(rpcprof.Received, at+int64(2*time.Millisecond))
	c.End(rpcprof.OK)
	s := p.Begin(p.Method("a.A/Get"), nil, 0)
	rpcprof.Region(s.Context(t.Context()), "part").End()
	s.End(rpcprof.OK)
	got := gather(t, p)
	for k, want := range map[string]uint64{
		key(CallDuration, "a.A/Get"): 2, key(ClientCallDuration, "a.A/Get"): 1, key(ClientStageDuration, "a.A/Get", "wire+server"): 1,
	} {
		if got[k] == nil || got[k].count != want {
			t.Errorf("%s is %+v, not %d calls", k, got[k], want)
		}
	}
	for k := range got {
		if strings.Contains(k, "part") {
			t.Errorf("a part of a handler is exported: %s", k)
		}
	}
}
