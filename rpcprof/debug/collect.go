package debug

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/blame"
	"github.com/rpcprof/toolkit/rpcprof/profile"
	"github.com/rpcprof/toolkit/rpcprof/segment"
	"github.com/rpcprof/toolkit/rpcprof/threads"
)

const (
	lookBack  = 30 * time.Second
	pollEvery = 40 * time.Millisecond // see probes: the smallest ring keeps up with 25,000 calls a second
	maxCalls  = 500_000               // of one look, about 200 bytes each
)

var errNothing = errors.New("nothing is recorded here")

// seen is what one look found.
type seen struct {
	report   blame.Report
	kept     []profile.Slow // the slowest and the failed of the last minutes, longest first
	since    rpcprof.Snapshot
	uptime   time.Duration
	windowed bool // calls that finished while it looked, not those before
	service  string
}

// collect looks for a while, or at d of 0 back at what the rings still hold.
func collect(ctx context.Context, p *rpcprof.Profiler, d time.Duration, o Options) (*seen, error) {
	r, err := p.Reader()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNothing, err)
	}
	h := r.Header()
	s := &seen{windowed: d > 0, service: h.ServiceString()}
	c := &collector{r: r}
	var table *threads.Table
	start := rpcprof.Now()
	if s.windowed {
		table = threads.New(os.Getpid())
		if err := c.wait(ctx, d, table); err != nil {
			return nil, err
		}
	} else if err := c.take(); err != nil {
		return nil, err
	}
	end := rpcprof.Now()
	if !s.windowed {
		start = c.since(end - int64(lookBack))
	}
	e := &profile.Evidence{Window: profile.Window{StartNS: start, EndNS: end}}
	src := &profile.Source{Records: c.records}
	if err := errors.Join(into(&src.Methods, r.Methods), into(&src.Slots, r.Slots), into(&src.Conns, r.Conns)); err != nil {
		return nil, err
	}
	e.Add(src)
	pr := profile.Join(e, profile.Options{SLONS: int64(o.SLO)})
	s.fill(pr, e, r, &h, table)
	if c.capped {
		pr.Limits = append(pr.Limits, fmt.Sprintf("there were more than %d calls; those after are left out", maxCalls))
	}
	s.report = blame.Report{Profile: pr, Verdicts: blame.Judge(pr, blame.Options{SLO: o.SLO, Stages: true})}
	if s.kept, err = kept(r, src.Methods, end); err != nil {
		return nil, err
	}
	s.since = p.Snapshot()
	s.uptime = time.Duration(end - h.StartNS)
	return s, nil
}

func into[T any](to *T, read func() (T, error)) (err error) {
	*to, err = read()
	return err
}

// collector gathers finished calls.
type collector struct {
	r       *segment.Reader
	records []segment.Record
	capped  bool
}

func (c *collector) take() (err error) {
	c.records, err = c.r.Records(c.records)
	if len(c.records) > maxCalls {
		c.records, c.capped = c.records[:maxCalls], true
	}
	return err
}

// wait gathers the calls that finish in the next d.
func (c *collector) wait(ctx context.Context, d time.Duration, t *threads.Table) error {
	if err := c.r.Skip(); err != nil {
		return err
	}
	tick, done := time.NewTicker(pollEvery), time.NewTimer(d)
	defer tick.Stop()
	defer done.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-done.C:
			t.Update()
			return c.take()
		case <-tick.C:
			if err := c.take(); err != nil {
				return err
			}
		}
	}
}

// since leaves out the calls that ended before a time, and gives when the first of
// the others began.
func (c *collector) since(from int64) int64 {
	first := from + int64(lookBack)
	c.records = slices.DeleteFunc(c.records, func(r segment.Record) bool { return slices.Max(r.Stamps[:]) < from })
	for i := range c.records {
		first = min(first, c.records[i].Stamps[0])
	}
	return first
}

// fill adds what does not come from the join.
func (s *seen) fill(pr *profile.Profile, e *profile.Evidence, r *segment.Reader, h *segment.Header, t *threads.Table) {
	comm, _ := os.Executable()
	pr.Targets = []profile.Target{{PID: os.Getpid(), Comm: filepath.Base(comm), Service: s.service, Runtime: runtime.Version(), Embedded: true, Privileges: "in process"}}
	pr.Connections, pr.Interrupts = []profile.Connection{}, []profile.Interrupt{}
	pr.Threads = []profile.Thread{}
	pr.Host.CPUs = []profile.HostCPU{}
	pr.Limits = []string{"seen from inside the process: why a stage takes long is known for queues and regions only; \"rpcprof attach PID\" adds what goroutines wait for and, as root, what the kernel knows"}
	var switches int64
	if t != nil {
		pr.SetThreads(t.Threads(), e, nil)
		for _, th := range pr.Threads {
			switches += th.Voluntary + th.Involuntary
		}
	} else {
		pr.Limits = append(pr.Limits, "threads and CPU time need a window: ask with ?seconds=5")
	}
	if samples, err := r.Runtime(); err == nil {
		pr.Runtime = profile.RuntimeOf(samples, e.Window, e.Finished(), switches)
	}
	if d := h.DegradedString(); d != "" {
		pr.Limits = append(pr.Limits, "the library says: "+d)
	}
	lost, _, _, _, err := r.Counts()
	if err == nil {
		pr.Lost.Calls = lost
	}
	pr.Lost.Calls += r.Torn
	if s.windowed {
		pr.Lost.Calls += r.Overwritten
	}
}

// kept gives, of the calls that the Profiler keeps beyond the ring, the slowest and
// the last that did not end well, as many as the page shows.
func kept(r *segment.Reader, methods []segment.Method, end int64) ([]profile.Slow, error) {
	recs, err := r.Kept()
	if err != nil {
		return nil, err
	}
	wall := func(r *segment.Record) int64 { return slices.Max(r.Stamps[:]) - r.Stamps[0] }
	slices.SortFunc(recs, func(a, b segment.Record) int { return cmp.Compare(wall(&b), wall(&a)) })
	few := slices.Clone(recs[:min(len(recs), maxCallsOf)])
	failed := slices.DeleteFunc(recs, func(r segment.Record) bool { return r.Outcome == segment.OK })
	slices.SortFunc(failed, func(a, b segment.Record) int {
		return cmp.Compare(slices.Max(b.Stamps[:]), slices.Max(a.Stamps[:]))
	})
	few = append(few, failed[:min(len(failed), maxCallsOf)]...)
	slices.SortFunc(few, func(a, b segment.Record) int { return cmp.Compare(a.Call, b.Call) })
	few = slices.CompactFunc(few, func(a, b segment.Record) bool { return a.Call == b.Call })
	e := &profile.Evidence{Window: profile.Window{StartNS: 1, EndNS: end}}
	e.Add(&profile.Source{Methods: methods, Records: few})
	return profile.Join(e, profile.Options{Slowest: len(few)}).Slowest, nil
}
