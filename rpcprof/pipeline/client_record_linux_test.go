package pipeline_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/pipeline"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// dialProf makes a client whose calls are recorded.
func dialProf(t testing.TB, prof *rpcprof.Profiler, addr string) *pipeline.Client {
	t.Helper()
	c, err := pipeline.ClientConfig{Profiler: prof, MaxFrame: 4096}.Dial(context.Background(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// checkStamps holds a client's record against its outcome: the stamps are in order;
// none is missing but Sent where a reply came first; what has no reply ends in the
// stage that it was in.
func checkStamps(t *testing.T, r *segment.Record, replied bool) {
	t.Helper()
	last, gap := int64(1), false
	for s, at := range r.Stamps {
		if at == 0 {
			gap = gap || segment.Stamp(s) != segment.ClientSent
			continue
		}
		if at < last || gap {
			t.Errorf("%v: stamp %d after a later one or after one that is missing: %v", r.Outcome, s, r.Stamps)
		}
		last = at
	}
	_, timed := r.ServerTiming()
	cut := r.Flags&segment.FlagCut != 0
	if (r.Stamps[segment.Woken] != 0) != replied || (r.Stamps[segment.Returned] != 0) != replied || timed != replied || cut == replied {
		t.Errorf("%v, replied %v: times %v, cut %v, stamps %v", r.Outcome, replied, timed, cut, r.Stamps)
	}
}

// Each way in which a call can end is in its record.
func TestClientOutcomes(t *testing.T) {
	checkGoroutines(t)
	serverProf, _ := profiler(t)
	started, release := make(chan bool, 1), make(chan bool)
	addr := serve(t, pipeline.ServerConfig{Profiler: serverProf, Workers: 2}, map[string]pipeline.Handler{
		"Echo":  echo,
		"Fail":  func(context.Context, []byte) ([]byte, error) { return nil, errors.New("no") },
		"Panic": func(context.Context, []byte) ([]byte, error) { panic("on purpose") },
		"Late": func(context.Context, []byte) ([]byte, error) {
			return nil, &pipeline.RemoteError{Code: pipeline.CodeExpired}
		},
		"Gone": func(context.Context, []byte) ([]byte, error) {
			return nil, &pipeline.RemoteError{Code: pipeline.CodeCancelled}
		},
		"Block": func(context.Context, []byte) ([]byte, error) {
			started <- true
			<-release
			return nil, nil
		},
	})
	prof, file := profiler(t)
	c := dialProf(t, prof, addr)
	past, cancelPast := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancelPast()
	over, cancelOver := context.WithCancel(context.Background())
	cancelOver()
	// One that begins to wait and is then given up.
	waits := func(end func(context.Context) (context.Context, context.CancelFunc)) func() error {
		return func() error {
			ctx, cancel := end(context.Background())
			defer cancel()
			go func() {
				<-started
				cancel()
			}()
			_, err := c.Call(ctx, "Block", nil)
			release <- true
			return err
		}
	}
	call := func(ctx context.Context, method string, size int) func() error {
		return func() error { _, err := c.Call(ctx, method, make([]byte, size)); return err }
	}
	for _, tt := range []struct {
		name    string
		call    func() error
		want    segment.Outcome
		replied bool
	}{
		{"ok", call(within(t), "Echo", 10), segment.OK, true},
		{"handler's error", call(within(t), "Fail", 10), segment.Error, true},
		{"panic", call(within(t), "Panic", 10), segment.Error, true},
		{"expired there", call(within(t), "Late", 10), segment.Expired, true},
		{"cancelled there", call(within(t), "Gone", 10), segment.Cancelled, true},
		{"expired while it waits", waits(func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond) // long enough for the handler to start
			return ctx, func() { <-ctx.Done(); cancel() }
		}), segment.Expired, false},
		{"cancelled while it waits", waits(context.WithCancel), segment.Cancelled, false},
		{"expired before", call(past, "Echo", 10), segment.Expired, false},
		{"cancelled before", call(over, "Echo", 10), segment.Cancelled, false},
		{"too large", call(within(t), "Echo", 5000), segment.Error, false},
		{"connection lost", func() error {
			go func() { <-started; _ = c.Close(); release <- true }()
			_, err := c.Call(within(t), "Block", nil)
			return err
		}, segment.Error, false},
		{"connection lost before", call(within(t), "Echo", 10), segment.Error, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.call(); (err == nil) != (tt.want == segment.OK) {
				t.Error(err)
			}
			recs := records(t, file, 1)
			if len(recs) != 1 || recs[0].Outcome != tt.want || recs[0].Parent != 0 {
				t.Fatalf("%d records, the first %v in call %d", len(recs), recs[0].Outcome, recs[0].Parent)
			}
			checkStamps(t, &recs[0], tt.replied)
		})
	}
	if slots, err := file.Slots(); err != nil || len(slots) != 0 {
		t.Errorf("slots in use after Close: %v, %v", slots, err)
	}
}

// A caller that gives up in the instant in which its reply comes: each call ends
// once, as its caller was told.
func TestGivingUp(t *testing.T) {
	const callers, each = 32, 300
	checkGoroutines(t)
	prof, file := profiler(t)
	var recs []segment.Record
	var told [segment.Outcomes]atomic.Int64
	t.Run("calls", func(t *testing.T) {
		c := dialProf(t, prof, serve(t, pipeline.ServerConfig{Workers: 2}, map[string]pipeline.Handler{"Echo": echo}))
		var usual atomic.Int64 // about what a call takes here, so that half of the deadlines are too short
		usual.Store(int64(100 * time.Microsecond))
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for i := range each {
					patience := time.Duration(rand.Int64N(2*usual.Load() + 1))
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					if i%2 == 0 {
						cancel()
						ctx, cancel = context.WithCancel(context.Background())
						time.AfterFunc(patience, cancel)
					}
					begin := time.Now()
					_, err := c.Call(ctx, "Echo", []byte{1})
					took := int64(time.Since(begin))
					cancel()
					switch {
					case err == nil:
						told[segment.OK].Add(1)
						usual.Store(max(took, 1))
					case errors.Is(err, context.DeadlineExceeded):
						told[segment.Expired].Add(1)
						usual.Add(usual.Load() / 8)
					case errors.Is(err, context.Canceled):
						told[segment.Cancelled].Add(1)
						usual.Add(usual.Load() / 8)
					default:
						t.Error(err)
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		for running := true; running; {
			select {
			case <-done:
				running = false
			case <-time.After(time.Millisecond):
			}
			var err error
			if recs, err = file.Records(recs); err != nil {
				t.Fatal(err)
			}
		}
	})
	if s := prof.Snapshot(); len(recs) != callers*each || file.Overwritten+file.Torn+s.Lost != 0 || s.Methods[0].Total.Count != callers*each {
		t.Errorf("%d records of %d calls; %d overwritten, %d torn, %+v", len(recs), callers*each, file.Overwritten, file.Torn, s)
	}
	ids := map[uint64]bool{}
	var got [segment.Outcomes]int64
	for i := range recs {
		r := &recs[i]
		ids[r.Call] = true
		got[r.Outcome]++
	}
	for o := range got {
		if n := told[o].Load(); n != got[o] {
			t.Errorf("%d calls are %v, as their callers were told %d", got[o], segment.Outcome(o), n)
		}
	}
	if len(ids) != len(recs) {
		t.Errorf("%d ids for %d calls", len(ids), len(recs))
	}
	t.Logf("%d ok, %d expired, %d cancelled", got[segment.OK], got[segment.Expired], got[segment.Cancelled])
	if slots, err := file.Slots(); err != nil || len(slots) != 0 {
		t.Errorf("slots in use after Close: %v, %v", slots, err)
	}
}

// Calls of a connection that fails under them are told once and recorded once.
func TestConnectionFails(t *testing.T) {
	const n = 200
	checkGoroutines(t)
	prof, file := profiler(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := dialProf(t, prof, l.Addr().String())
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			ctx := context.Background()
			if i%2 == 0 { // some give up at about the same time
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 5*time.Millisecond)
				defer cancel()
			}
			if _, err := c.Call(ctx, "Echo", make([]byte, 100)); err == nil {
				t.Error("a call without a server went well")
			}
		})
	}
	time.Sleep(5 * time.Millisecond)
	_ = peer.Close()
	wg.Wait()
	recs := records(t, file, n)
	for i := range recs {
		if o := recs[i].Outcome; o != segment.Error && o != segment.Expired {
			t.Errorf("a call is %v", o)
		}
		checkStamps(t, &recs[i], false)
	}
	_ = c.Close()
	if slots, err := file.Slots(); err != nil || len(slots) != 0 || len(recs) != n {
		t.Errorf("%d records; slots in use after Close: %v, %v", len(recs), slots, err)
	}
}
