package pipeline_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/pipeline"
	"github.com/rpcprof/toolkit/rpcprof/profile"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// A call made for a call that is served knows it: by the context on any goroutine,
// without one on the handler's own, and not when that call has ended.
func TestParents(t *testing.T) {
	for _, workers := range []int{0, 2} {
		t.Run(map[int]string{0: "inline", 2: "workers"}[workers], func(t *testing.T) {
			checkGoroutines(t)
			prof, file := profiler(t)
			names := []string{"Own", "OwnWithout", "Plain", "PlainWithout", "Go", "After", "AfterReuse"}
			handlers := map[string]pipeline.Handler{}
			for _, name := range names {
				handlers[name] = echo
			}
			c := dialProf(t, prof, serve(t, pipeline.ServerConfig{}, handlers))
			call := func(ctx context.Context, name string) {
				if _, err := c.Call(ctx, name, nil); err != nil {
					t.Error(name, err)
				}
			}
			var kept context.Context // without the cancellation, which ends with the call
			blocked, release := make(chan bool, 1), make(chan bool)
			front := dial(t, serve(t, pipeline.ServerConfig{Profiler: prof, Workers: workers}, map[string]pipeline.Handler{
				"Front": func(ctx context.Context, _ []byte) ([]byte, error) {
					kept = context.WithoutCancel(ctx)
					call(ctx, "Own")
					call(context.Background(), "OwnWithout")
					done := make(chan bool, 2)
					go func() {
						call(ctx, "Plain")
						call(context.Background(), "PlainWithout")
						done <- true
					}()
					rpcprof.Go(ctx, func() { call(ctx, "Go"); done <- true })
					<-done
					<-done
					return nil, nil
				},
				"Block": func(context.Context, []byte) ([]byte, error) {
					blocked <- true
					<-release
					return nil, nil
				},
			}))
			if _, err := front.Call(within(t), "Front", nil); err != nil {
				t.Fatal(err)
			}
			recs := records(t, file, 7) // the call, its goroutine, five calls made
			call(kept, "After")
			// Calls of later use the same memory.
			var later sync.WaitGroup
			for range max(workers, 1) {
				later.Go(func() { _, _ = front.Call(within(t), "Block", nil) })
			}
			receive(t, blocked)
			call(kept, "AfterReuse")
			close(release)
			go func() {
				for range blocked {
				}
			}()
			later.Wait()
			close(blocked)
			recs = append(recs, records(t, file, 2+max(workers, 1))...)
			methods, err := file.Methods()
			if err != nil {
				t.Fatal(err)
			}
			parents := map[string]uint64{}
			var parent, goid uint64
			for _, r := range recs {
				m := &methods[r.Method]
				switch {
				case m.Side == segment.Client:
					parents[m.NameString()] = r.Parent
				case m.NameString() == "Front":
					parent, goid = r.Call, r.Goid
				}
			}
			want := map[string]uint64{"Own": parent, "OwnWithout": parent, "Plain": parent, "PlainWithout": 0, "Go": parent, "After": 0, "AfterReuse": 0}
			for _, name := range names {
				if name == "OwnWithout" && goid == 0 {
					continue // goroutines cannot be told apart here, as under qemu-user
				}
				if got, ok := parents[name]; !ok || got != want[name] || parent == 0 {
					t.Errorf("%s is in call %d (%v), not %d", name, got, ok, want[name])
				}
			}
		})
	}
}

// What a server does not tell is not guessed: the wire and the server are one stage.
func TestServerTellsNothing(t *testing.T) {
	for _, tells := range []bool{false, true} {
		prof, file := profiler(t)
		cfg := pipeline.ServerConfig{}
		if tells {
			cfg.Profiler, _ = profiler(t)
		}
		c := dialProf(t, prof, serve(t, cfg, map[string]pipeline.Handler{"Echo": echo}))
		begin := rpcprof.Now()
		const n = 50
		for range n {
			if _, err := c.Call(within(t), "Echo", nil); err != nil {
				t.Fatal(err)
			}
		}
		recs := records(t, file, n)
		methods, err := file.Methods()
		if err != nil {
			t.Fatal(err)
		}
		e := profile.Evidence{Window: profile.Window{StartNS: begin, EndNS: rpcprof.Now()}}
		e.Add(&profile.Source{Methods: methods, Records: recs})
		for _, call := range profile.Join(&e, profile.Options{Slowest: n}).Slowest {
			_, whole := call.Stages["wire+server"]
			_, more := call.Stages["write+wire+server"]
			_, wire := call.Stages["wire+recv"]
			_, moreWire := call.Stages["write+wire+recv"]
			_, handler := call.Stages["server.handler"]
			if (whole || more) == tells || (wire || moreWire) != tells || handler != tells {
				t.Errorf("the server tells: %v; stages %v", tells, call.Stages)
			}
		}
		if _, ok := prof.Snapshot().Methods[0].Stages["server"]; ok != tells {
			t.Errorf("the server tells: %v; counted: %v", tells, ok)
		}
	}
}

// Goroutines that go on after the handlers that started them use contexts of calls
// that end in the same instant, and whose memory the next calls use.
func TestContextOutlivesCall(t *testing.T) {
	checkGoroutines(t)
	prof, file := profiler(t)
	var late sync.WaitGroup
	t.Run("calls", func(t *testing.T) {
		c := dialProf(t, prof, serve(t, pipeline.ServerConfig{}, map[string]pipeline.Handler{"Echo": echo}))
		front := dial(t, serve(t, pipeline.ServerConfig{Profiler: prof, Workers: 2}, map[string]pipeline.Handler{
			"Front": func(ctx context.Context, _ []byte) ([]byte, error) {
				ctx = context.WithoutCancel(ctx)
				late.Go(func() {
					for range 10 {
						region := rpcprof.Region(ctx, "late")
						if _, err := c.Call(ctx, "Echo", nil); err != nil {
							t.Error(err)
						}
						late.Add(1)
						rpcprof.Go(ctx, late.Done)
						region.End()
					}
				})
				return nil, nil
			},
		}))
		for range 300 {
			if _, err := front.Call(within(t), "Front", nil); err != nil {
				t.Fatal(err)
			}
		}
		late.Wait()
	})
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		slots, err := file.Slots()
		if err == nil && len(slots) == 0 {
			break
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("slots in use after Close: %v, %v", slots, err)
		}
	}
	if file.Torn != 0 || prof.Snapshot().Lost != 0 {
		t.Errorf("%d torn, %d lost", file.Torn, prof.Snapshot().Lost)
	}
}
