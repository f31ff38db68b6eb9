package rpcproftest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// patience bounds every wait for a call.
const patience = 10 * time.Second

// Recorder has a Profiler and the calls that it recorded. Its methods may be used from
// the test's own goroutine only, as those of testing.T that end a test.
type Recorder struct {
	t    testing.TB
	prof *rpcprof.Profiler

	reader  *segment.Reader
	methods []segment.Method
	late    []segment.Record // of a look's second pass
	calls   []Call           // by when they ended
	parts   map[uint64][]part
}

type part struct {
	side segment.Side
	Part
}

// New makes a Recorder, whose Profiler is closed when the test has ended. Where
// RPCPROF=off switches recording off, the test is skipped.
func New(t testing.TB) *Recorder {
	t.Helper()
	p := rpcprof.New(rpcprof.Config{Service: t.Name(), NoControl: true})
	t.Cleanup(func() { _ = p.Close() })
	r, err := p.Reader()
	if err != nil {
		t.Skipf("rpcproftest: %v: %v", err, p.Err())
	}
	return &Recorder{t: t, prof: p, reader: r, parts: map[uint64][]part{}}
}

// Profiler is what the service under test is to be given.
func (r *Recorder) Profiler() *rpcprof.Profiler { return r.prof }

// Calls gives the calls, served and made, that have finished so far, in the order in
// which they ended. It fails the test when there were too many to see each: 1,000
// calls and regions between two looks are safe.
func (r *Recorder) Calls() []Call {
	r.t.Helper()
	if err := r.look(); err != nil {
		r.t.Fatalf("rpcproftest: %v", err)
	}
	out := slices.Clone(r.calls)
	for i := range out {
		for _, p := range r.parts[out[i].ID] {
			if p.side == segment.Region {
				out[i].Regions = append(out[i].Regions, p.Part)
			} else {
				out[i].Tasks = append(out[i].Tasks, p.Part)
			}
		}
	}
	return out
}

// Wait waits until n calls have finished, served and made together, and gives all
// that have. It fails the test when they do not.
func (r *Recorder) Wait(n int) []Call {
	r.t.Helper()
	var calls []Call
	r.until(fmt.Sprintf("%d calls", n), func() bool {
		calls = r.Calls()
		return len(calls) >= n
	})
	return calls
}

// Served gives the last finished call of that method that was served; it waits for
// one, and fails the test when there is none.
func (r *Recorder) Served(method string) Call { r.t.Helper(); return r.last(segment.Server, method) }

// Made is Served for a call that was made.
func (r *Recorder) Made(method string) Call { r.t.Helper(); return r.last(segment.Client, method) }

func (r *Recorder) last(side segment.Side, method string) (found Call) {
	r.t.Helper()
	r.until(fmt.Sprintf("a %s call of %s", side, method), func() bool {
		for _, c := range slices.Backward(r.Calls()) {
			if c.Side == side.String() && c.Method == method {
				found = c
				return true
			}
		}
		return false
	})
	return found
}

// until waits for a condition.
func (r *Recorder) until(what string, met func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !met(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("rpcproftest: waited for %s; there is\n%s", what, r.seen())
		}
	}
}

// look reads what has been recorded since the last time. Each shard is read after the
// other, so a region may be missed whose call is seen; a second pass finds it. Calls that
// are new in that one wait for the next look.
func (r *Recorder) look() error {
	first, err := r.reader.Records(r.late)
	if err != nil {
		return err
	}
	second, err := r.reader.Records(nil)
	if err != nil {
		return err
	}
	lost, _, _, _, err := r.reader.Counts()
	if err != nil {
		return err
	}
	if lost += r.reader.Overwritten + r.reader.Torn; lost > 0 {
		return fmt.Errorf("%d calls were gone before the test looked", lost)
	}
	if r.methods, err = r.reader.Methods(); err != nil {
		return err
	}
	r.late = nil
	for i := range first {
		r.add(&first[i])
	}
	for i := range second {
		if r.methods[second[i].Method].Side > segment.Client {
			r.add(&second[i])
		} else {
			r.late = append(r.late, second[i])
		}
	}
	slices.SortStableFunc(r.calls, func(a, b Call) int { return cmp.Compare(a.End, b.End) })
	return nil
}

func (r *Recorder) add(rec *segment.Record) {
	m := &r.methods[rec.Method]
	if m.Side <= segment.Client {
		r.calls = append(r.calls, newCall(m, rec))
		return
	}
	begin, end := rec.Stamps[segment.Begun], rec.Stamps[segment.Ended]
	r.parts[rec.Parent] = append(r.parts[rec.Parent], part{m.Side, Part{m.NameString(), begin, time.Duration(end - begin)}})
}

// seen says what there is: the finished calls and those in flight.
func (r *Recorder) seen() string {
	var b strings.Builder
	calls := r.Calls()
	for _, c := range calls[max(0, len(calls)-20):] {
		fmt.Fprintln(&b, "\t"+c.String())
	}
	slots, _ := r.reader.Slots()
	for _, s := range slots {
		if s.Kind == segment.KindCall && int(s.Method) < len(r.methods) {
			m := &r.methods[s.Method]
			fmt.Fprintf(&b, "\t%s %s in flight, in %s\n", m.Side, m.NameString(), segment.StageName(m.Side, s.Stage))
		}
	}
	return fmt.Sprintf("%d finished, of which the last, and in flight:\n%s", len(calls), b.String())
}
