package rpcproftest_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/pipeline"
	"github.com/rpcprof/toolkit/rpcprof/rpcproftest"
)

// service is a pipeline server and a client of it, both recorded.
func service(t *testing.T, handlers map[string]pipeline.Handler) (*rpcproftest.Recorder, *pipeline.Client) {
	t.Helper()
	rec := rpcproftest.New(t)
	srv := pipeline.NewServer(pipeline.ServerConfig{Profiler: rec.Profiler(), Workers: 4})
	for name, h := range handlers {
		srv.Handle(name, h)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	client, err := pipeline.ClientConfig{Profiler: rec.Profiler()}.Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(); _ = srv.Close(); <-done })
	return rec, client
}

func TestBothSides(t *testing.T) {
	const slept = 3 * time.Millisecond
	rec, client := service(t, map[string]pipeline.Handler{
		"a.A/Get": func(ctx context.Context, req []byte) ([]byte, error) {
			defer rpcprof.Region(ctx, "lookup").End()
			time.Sleep(slept)
			return []byte("answer"), nil
		},
		"a.A/Bad": func(context.Context, []byte) ([]byte, error) { return nil, errors.New("no") },
	})
	if _, err := client.Call(t.Context(), "a.A/Get", []byte("req")); err != nil {
		t.Fatal(err)
	}
	served, made := rec.Served("a.A/Get"), rec.Made("a.A/Get")
	rpcproftest.Complete(t, served)
	rpcproftest.AtLeast(t, served, "handler", slept)
	rpcproftest.AtLeast(t, made, "wire+server", slept)
	if made.Server < slept || made.Server > made.Total || made.ServerCall != served.ID {
		t.Errorf("the reply told of %v in call %x there, not %x", made.Server, made.ServerCall, served.ID)
	}
	if len(served.Regions) != 1 || served.Regions[0].Name != "lookup" || served.Regions[0].Time < slept || served.Regions[0].Time > served.Stages["handler"] {
		t.Errorf("regions %+v in %s", served.Regions, served)
	}
	if served.BytesIn == 0 || served.BytesOut == 0 || served.Begin == 0 || served.End-served.Begin != int64(served.Total) {
		t.Errorf("the call is %+v", served)
	}
	if _, err := client.Call(t.Context(), "a.A/Bad", nil); err == nil {
		t.Fatal("no error")
	}
	if calls := rec.Wait(4); len(calls) != 4 {
		t.Errorf("%d calls", len(calls))
	}
	if c := rec.Served("a.A/Bad"); c.Outcome != rpcprof.Error {
		t.Errorf("the outcome is %v", c.Outcome)
	}
}

// A call that a handler makes belongs to it, and so does a goroutine it starts.
func TestParent(t *testing.T) {
	var client *pipeline.Client
	var rec *rpcproftest.Recorder
	rec, client = service(t, map[string]pipeline.Handler{
		"a.A/Outer": func(ctx context.Context, req []byte) ([]byte, error) {
			done := make(chan struct{})
			rpcprof.Go(ctx, func() { close(done) })
			<-done
			return client.Call(ctx, "a.A/Inner", req)
		},
		"a.A/Inner": func(_ context.Context, req []byte) ([]byte, error) { return req, nil },
	})
	if _, err := client.Call(t.Context(), "a.A/Outer", nil); err != nil {
		t.Fatal(err)
	}
	rec.Wait(4)
	outer, inner := rec.Served("a.A/Outer"), rec.Made("a.A/Inner")
	if inner.Parent != outer.ID || rec.Made("a.A/Outer").Parent != 0 {
		t.Errorf("the inner call's parent is %x, the outer call %x", inner.Parent, outer.ID)
	}
	for end := time.Now().Add(10 * time.Second); len(rec.Served("a.A/Outer").Tasks) != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("tasks %+v", rec.Served("a.A/Outer").Tasks)
		}
	}
}

// Looking while calls are recorded misses none, and no region of one.
func TestLookMeanwhile(t *testing.T) {
	const n, each = 4, 200
	rec := rpcproftest.New(t)
	p := rec.Profiler()
	m := p.Method("m")
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for range each {
				c := p.Begin(m, nil, 0)
				c.Start(nil, 0)
				c.Stamp(rpcprof.Handler)
				rpcprof.Region(c.Context(context.Background()), "r").End()
				for s := rpcprof.Handled; s <= rpcprof.Sent; s++ {
					c.Stamp(s)
				}
				c.End(rpcprof.OK)
			}
		})
	}
	var calls []rpcproftest.Call
	for len(calls) < n*each {
		calls = rec.Wait(min(n*each, len(calls)+1))
		for _, c := range calls {
			if len(c.Regions) != 1 {
				t.Fatalf("%d regions in %s", len(c.Regions), c)
			}
		}
	}
	wg.Wait()
	for _, c := range calls {
		rpcproftest.Complete(t, c)
	}
}

// What fails says what there was.
func TestMessages(t *testing.T) {
	in := &tester{}
	defer in.end()
	rec := rpcproftest.New(in)
	p := rec.Profiler()
	c := p.Begin(p.Method("half"), nil, 1000)
	c.StampAt(rpcprof.Handler, 2000)
	c.StampAt(rpcprof.Handled, 3000)
	c.End(rpcprof.OK)
	got := rec.Served("half")
	rpcproftest.Complete(in, got)
	rpcproftest.AtLeast(in, got, "handler", time.Second)
	rpcproftest.AtLeast(in, got, "queue", 0)
	all := strings.Join(in.failed, "\n")
	for _, want := range []string{`no stage "queue"`, `no stage "write"`, "server half ok in 2µs: handler 1µs", "handler took 1µs, not 1s", "queue took 0s"} {
		if !strings.Contains(all, want) {
			t.Errorf("it does not say %q:\n%s", want, all)
		}
	}
	if strings.Contains(all, `stage "handler"`) {
		t.Errorf("it misses what is there:\n%s", all)
	}
}
