package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/pipeline"
	"github.com/rpcprof/toolkit/rpcprof/profile"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// served is a service's Profiler and what it has recorded.
type served struct {
	prof    *rpcprof.Profiler
	reader  *segment.Reader
	methods []segment.Method
	records []segment.Record
}

func recorder(t *testing.T) *served {
	t.Helper()
	s := &served{prof: rpcprof.New(rpcprof.Config{Service: t.Name()})}
	t.Cleanup(func() { _ = s.prof.Close() })
	var err error
	if s.reader, err = s.prof.Reader(); err != nil {
		t.Fatal(err)
	}
	return s
}

// start serves until the test ends.
func start(t *testing.T, srv *pipeline.Server) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skip("there is no loopback: ", err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return l.Addr().String()
}

func dial(t *testing.T, prof *rpcprof.Profiler, addr string) *pipeline.Client {
	t.Helper()
	c, err := pipeline.ClientConfig{Profiler: prof}.Dial(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// wait reads records until there are n.
func (s *served) wait(t *testing.T, n int) {
	t.Helper()
	var err error
	for end := time.Now().Add(30 * time.Second); len(s.records) < n; time.Sleep(time.Millisecond) {
		if s.records, err = s.reader.Records(s.records); err != nil || time.Now().After(end) {
			t.Fatalf("%d records of %d, %v", len(s.records), n, err)
		}
	}
	if s.methods, err = s.reader.Methods(); err != nil {
		t.Fatal(err)
	}
}

// by gives the records of a method by how many bytes were the request's payload, of
// which each call of the test has another number.
func (s *served) by(t *testing.T, name string) map[int]*segment.Record {
	t.Helper()
	out := map[int]*segment.Record{}
	for i := range s.records {
		r := &s.records[i]
		if m := &s.methods[r.Method]; m.NameString() == name {
			n := int(r.BytesIn) - (4 + 9 + 2 + len(name) + 8)
			if out[n] != nil {
				t.Errorf("%s: two records of the call with %d bytes", name, n)
			}
			out[n] = r
		}
	}
	return out
}

// spans gives the records of a side that is within calls, by the call.
func (s *served) spans(t *testing.T, side segment.Side) map[uint64]*segment.Record {
	t.Helper()
	out := map[uint64]*segment.Record{}
	for i := range s.records {
		if r := &s.records[i]; s.methods[r.Method].Side == side {
			if out[r.Parent] != nil {
				t.Errorf("two %ss in call %d", side, r.Parent)
			}
			out[r.Parent] = r
		}
	}
	return out
}

// The frontend's records alone say what the backend did, and to which of its own
// calls all belongs that was done for it.
func TestFrontendKnows(t *testing.T) {
	const n, callers = 200, 4
	front, back := recorder(t), recorder(t)

	var mu sync.Mutex
	slept := map[int][2]int64{} // by payload size: when the backend slept
	backend := pipeline.NewServer(pipeline.ServerConfig{Profiler: back.prof, Workers: 1})
	backend.Handle("back.Stock/Get", func(_ context.Context, req []byte) ([]byte, error) {
		begin := rpcprof.Now()
		if len(req)%slowEvery == 0 {
			time.Sleep(slowFor / 5)
		}
		mu.Lock()
		defer mu.Unlock()
		slept[len(req)] = [2]int64{begin, rpcprof.Now()}
		return req, nil
	})
	backend.Handle("back.Price/Get", price)
	addr := start(t, newFrontend(front.prof, dial(t, front.prof, start(t, backend))))

	begin := rpcprof.Now()
	client := dial(t, nil, addr)
	var wg sync.WaitGroup
	for k := range callers {
		wg.Go(func() {
			for i := k; i < n; i += callers {
				req := strings.Repeat("x", i+1)
				if got, err := client.Call(t.Context(), "front.Page/Get", []byte(req)); err != nil || string(got) != "price of "+req+" "+req {
					t.Errorf("call %d: %q, %v", i, got, err)
				}
			}
		})
	}
	wg.Wait()
	front.wait(t, 5*n) // a call, its region, its goroutine and two calls made
	back.wait(t, 2*n)
	if len(front.records) != 5*n || len(back.records) != 2*n {
		t.Fatalf("%d and %d records", len(front.records), len(back.records))
	}

	pages := front.by(t, "front.Page/Get")
	regions, tasks := front.spans(t, segment.Region), front.spans(t, segment.Task)
	for _, name := range []string{"back.Stock/Get", "back.Price/Get"} {
		made, done := front.by(t, name), back.by(t, name)
		for i := 1; i <= n; i++ {
			if pages[i] == nil || made[i] == nil || done[i] == nil {
				t.Fatalf("no records of the call with %d bytes", i)
			}
			if made[i].Parent != pages[i].Call {
				t.Errorf("%s %d is in call %d, not %d", name, i, made[i].Parent, pages[i].Call)
			}
			checkTiming(t, fmt.Sprint(name, " ", i), made[i], done[i])
			if name == "back.Stock/Get" {
				at := slept[i]
				s := done[i].Stamps
				if said, _ := made[i].ServerTiming(); said.Handler+segment.TimingUnit < at[1]-at[0] || s[segment.Handler] > at[0] || s[segment.Handled] < at[1] {
					t.Errorf("%s %d: server.handler is %d, by the backend's handler itself %d", name, i, said.Handler, at[1]-at[0])
				}
			}
		}
		for i := 1; i <= n; i++ {
			p := pages[i]
			in := func(what string, r *segment.Record, until int64, goid uint64) {
				if r == nil {
					t.Fatalf("call %d has no %s", i, what)
				}
				if b, e := r.Stamps[segment.Begun], r.Stamps[segment.Ended]; b < p.Stamps[segment.Handler] || b > p.Stamps[segment.Handled] || e > until || r.Goid != goid {
					t.Errorf("call %d, stamps %v, goroutine %d: its %s from %d to %d on goroutine %d", i, p.Stamps, goid, what, b, e, r.Goid)
				}
			}
			in("region", regions[p.Call], p.Stamps[segment.Handled], p.Goid)
			if name == "back.Stock/Get" {
				// It ends by itself, after what the handler waits for.
				in("goroutine", tasks[p.Call], rpcprof.Now(), made[i].Goid)
			}
		}
	}
	checkSums(t, front, begin, n)
}

// checkTiming holds what a reply told against the server's own record.
func checkTiming(t *testing.T, what string, made, done *segment.Record) {
	t.Helper()
	said, ok := made.ServerTiming()
	if !ok || said.Call != done.Call {
		t.Fatalf("%s: the reply tells of call %d (%v), which is %d there", what, said.Call, ok, done.Call)
	}
	s := done.Stamps
	for i, d := range []int64{said.Queue, said.Decode, said.Handler, said.Encode} {
		if was := s[i+1] - s[i]; d > was || d <= was-segment.TimingUnit {
			t.Errorf("%s: %s is %d, at the server %d", what, segment.StageName(segment.Server, segment.Stage(i+1)), d, was)
		}
	}
	// One machine, one clock: what the server did lies within the wire.
	c := made.Stamps
	if c[segment.ClientWrite] > s[segment.Recv] || s[segment.Write] > c[segment.Received] {
		t.Errorf("%s: client %v, server %v", what, c, s)
	}
}

// checkSums joins the frontend's records: each call's stages add up to it.
func checkSums(t *testing.T, s *served, begin int64, n int) {
	t.Helper()
	e := profile.Evidence{Window: profile.Window{StartNS: begin, EndNS: rpcprof.Now()}}
	e.Add(&profile.Source{Methods: s.methods, Records: s.records})
	p := profile.Join(&e, profile.Options{Slowest: 3 * n})
	if len(p.Slowest) != 3*n {
		t.Fatalf("%d calls of %d", len(p.Slowest), 3*n)
	}
	for i := range p.Slowest {
		c := &p.Slowest[i]
		sum := int64(0)
		for stage, causes := range c.Stages {
			for _, ns := range causes {
				if sum += ns; ns < 0 {
					t.Errorf("%s: %s of %d ns", c.Method, stage, ns)
				}
			}
		}
		_, told := c.Stages["server.handler"]
		if sum != c.WallNS || told != (c.Side == "client") {
			t.Errorf("%s of %d ns: stages of %d ns, %v", c.Method, c.WallNS, sum, c.Stages)
		}
	}
}
