package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/pipeline"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// profiler makes a Profiler and opens its segment the way a reader outside does.
func profiler(t *testing.T) (*rpcprof.Profiler, *segment.File) {
	t.Helper()
	// The segment is found by its name, of which 63 bytes are kept.
	name := fmt.Sprintf("%.40s-%d", t.Name(), time.Now().UnixNano())
	prof := rpcprof.New(rpcprof.Config{Service: name})
	t.Cleanup(func() { _ = prof.Close() })
	files, err := segment.Find(os.Getpid())
	if err != nil {
		t.Skip("segments cannot be read here: ", err, prof.Err())
	}
	var mine *segment.File
	for _, f := range files {
		h := f.Header()
		if h.ServiceString() == name {
			mine = f
			continue
		}
		_ = f.Close()
	}
	if mine == nil {
		t.Skip("no segment to be found: ", prof.Err())
	}
	t.Cleanup(func() { _ = mine.Close() })
	return prof, mine
}

// records waits until n calls have finished.
func records(t *testing.T, f *segment.File, n int) (out []segment.Record) {
	t.Helper()
	for end := time.Now().Add(patience); len(out) < n; time.Sleep(time.Millisecond) {
		var err error
		if out, err = f.Records(out); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatalf("%d calls of %d were recorded", len(out), n)
		}
	}
	return out
}

// waitWorkers waits until all workers are at work: a call that is served before
// rightly counts those that are.
func waitWorkers(t *testing.T, f *segment.File, n int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		slots, err := f.Slots()
		if err != nil {
			t.Fatal(err)
		}
		at := 0
		for _, s := range slots {
			if s.Kind == segment.KindWorker {
				at++
			}
		}
		if at == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d workers are at work", at, n)
		}
	}
}

func TestStamps(t *testing.T) {
	for _, workers := range []int{0, 3} {
		t.Run(fmt.Sprintf("workers=%d", workers), func(t *testing.T) {
			checkGoroutines(t)
			prof, file := profiler(t)
			nc := dialRaw(t, serve(t, pipeline.ServerConfig{Profiler: prof, Workers: workers}, map[string]pipeline.Handler{
				"test.T/Echo": echo,
				"test.T/Fail": func(context.Context, []byte) ([]byte, error) { return nil, errors.New("no") },
			}))
			waitWorkers(t, file, workers)
			// The methods take turns; every fourth request is of one that does not exist,
			// and counts in the batch but is not recorded.
			names := []string{"test.T/Echo", "test.T/Fail", "test.T/Echo", "test.T/None"}
			const n = 400
			var sent []byte
			size, index := map[uint64]int{}, map[uint64]int{} // by offset
			for i := range n {
				name := names[i%len(names)]
				r := rawRequest(uint64(i), name, 0, []byte(strings.Repeat("x", i)))
				size[uint64(len(sent))], index[uint64(len(sent))] = len(r), i
				sent = append(sent, r...)
			}
			begin := rpcprof.Now()
			go func() { _, _ = nc.Write(sent) }()
			for range n {
				readRaw(t, nc)
			}
			recs := records(t, file, n*3/4)
			end := rpcprof.Now()
			if len(recs) != n*3/4 {
				t.Fatalf("%d records", len(recs))
			}
			methods, err := file.Methods()
			if err != nil {
				t.Fatal(err)
			}
			type batch struct {
				recv int64
				size uint16
			}
			batches := map[uint32]batch{}
			positions := map[[2]uint32]bool{}
			for _, r := range recs {
				i, ok := index[r.Offset]
				if !ok || int(r.BytesIn) != size[r.Offset] {
					t.Fatalf("no request of %d bytes begins at %d", r.BytesIn, r.Offset)
				}
				delete(index, r.Offset)
				want, out := segment.OK, uint32(13+i)
				if i%4 == 1 {
					want, out = segment.Error, 13+1+2
				}
				if r.Outcome != want || r.BytesOut != out {
					t.Errorf("request %d: %v, %d bytes out", i, r.Outcome, r.BytesOut)
				}
				if got := methods[r.Method].NameString(); got != names[i%4] {
					t.Errorf("request %d: method %q", i, got)
				}
				last := begin
				for s, at := range r.Stamps[:segment.ServerStamps] {
					if at < last {
						t.Errorf("request %d: stamp %d at %d after %d", i, s, at, last)
					}
					last = at
				}
				if last > end || r.Release < r.Stamps[segment.Handled] || r.Release > r.Stamps[segment.Write] {
					t.Errorf("request %d: released at %d, stamps %v", i, r.Release, r.Stamps)
				}
				if int(r.Workers) != workers || r.Worker == 0 || (r.Queue != 0) != (workers > 0) {
					t.Errorf("request %d: worker %d of %d, queue %d", i, r.Worker, r.Workers, r.Queue)
				}
				b := batch{r.Stamps[segment.Recv], r.BatchSize}
				if old, ok := batches[r.Batch]; ok && old != b {
					t.Errorf("read %d: %v and %v", r.Batch, old, b)
				}
				batches[r.Batch] = b
				pos := [2]uint32{r.Batch, uint32(r.BatchPos)}
				if r.Batch == 0 || r.BatchPos >= r.BatchSize || positions[pos] {
					t.Errorf("request %d: read %d, position %d of %d", i, r.Batch, r.BatchPos, r.BatchSize)
				}
				positions[pos] = true
			}
			total := 0
			for _, b := range batches {
				total += int(b.size)
			}
			if total > n || total < n-len(batches) {
				t.Errorf("batches of %d requests altogether", total)
			}
		})
	}
}

// A request whose deadline passes in the queue is answered and recorded, and its
// handler is not run.
func TestExpiredInQueue(t *testing.T) {
	checkGoroutines(t)
	prof, file := profiler(t)
	started, release := make(chan bool, 1), make(chan bool)
	nc := dialRaw(t, serve(t, pipeline.ServerConfig{Profiler: prof, Workers: 1}, map[string]pipeline.Handler{
		"Block": func(context.Context, []byte) ([]byte, error) {
			started <- true
			<-release
			return nil, nil
		},
		"Late": func(context.Context, []byte) ([]byte, error) {
			t.Error("the handler was run")
			return nil, nil
		},
	}))
	if _, err := nc.Write(append(rawRequest(1, "Block", 0, nil), rawRequest(2, "Late", 1, nil)...)); err != nil {
		t.Fatal(err)
	}
	receive(t, started)
	time.Sleep(time.Millisecond)
	close(release)
	if seq, kind, _ := readRaw(t, nc); seq != 1 || kind != 2 {
		t.Errorf("reply %d, kind %d", seq, kind)
	}
	seq, kind, rest := readRaw(t, nc)
	if seq != 2 || kind != 3 || rest[0] != pipeline.CodeExpired {
		t.Errorf("reply %d, kind %d, %q", seq, kind, rest)
	}
	for _, r := range records(t, file, 2) {
		if (r.Outcome == segment.Expired) != (r.Stamps[segment.Handler] == 0) || r.Stamps[segment.Sent] == 0 {
			t.Errorf("%v, stamps %v", r.Outcome, r.Stamps)
		}
	}
}

// What cannot be answered is recorded as cancelled, what panics as an error, and
// a handler that ends with its deadline as expired.
func TestOutcomes(t *testing.T) {
	for _, workers := range []int{0, 1} {
		t.Run(fmt.Sprintf("workers=%d", workers), func(t *testing.T) {
			checkGoroutines(t)
			prof, file := profiler(t)
			started, release := make(chan bool, 1), make(chan bool)
			addr := serve(t, pipeline.ServerConfig{Profiler: prof, Workers: workers}, map[string]pipeline.Handler{
				"Panic": func(context.Context, []byte) ([]byte, error) { panic("on purpose") },
				"Wait": func(ctx context.Context, _ []byte) ([]byte, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				},
				"Block": func(context.Context, []byte) ([]byte, error) {
					started <- true
					<-release
					return make([]byte, 1000), nil
				},
			})
			nc := dialRaw(t, addr)
			expect := func(want segment.Outcome, last segment.Stamp) {
				t.Helper()
				r := records(t, file, 1)[0]
				if r.Outcome != want || r.Stamps[last] == 0 {
					t.Errorf("%v, stamps %v", r.Outcome, r.Stamps)
				}
			}
			for _, tt := range []struct {
				request []byte
				want    segment.Outcome
			}{
				{rawRequest(1, "Panic", 0, nil), segment.Error},
				{rawRequest(2, "Wait", uint64(time.Millisecond), nil), segment.Expired},
			} {
				if _, err := nc.Write(tt.request); err != nil {
					t.Fatal(err)
				}
				readRaw(t, nc)
				expect(tt.want, segment.Sent)
			}
			// The peer leaves while one call runs and one waits. Inline, nobody reads
			// meanwhile, so it is the write that fails, or the read after it.
			if _, err := nc.Write(append(rawRequest(3, "Block", 0, nil), rawRequest(4, "Block", 0, nil)...)); err != nil {
				t.Fatal(err)
			}
			receive(t, started)
			_ = nc.Close()
			if workers > 0 {
				waitClosed(t, file)
			}
			close(release)
			if workers > 0 {
				for _, r := range records(t, file, 2) {
					if r.Outcome != segment.Cancelled || r.Stamps[segment.Sent] != 0 {
						t.Errorf("%v, stamps %v", r.Outcome, r.Stamps)
					}
				}
				return
			}
			records(t, file, 2)
			select { // the second may have run as well
			case <-started:
			default:
			}
		})
	}
}

// waitClosed waits until the server has noticed that its only connection broke.
func waitClosed(t *testing.T, f *segment.File) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		conns, err := f.Conns()
		if err != nil {
			t.Fatal(err)
		}
		if len(conns) == 1 && conns[0].Open == 0 {
			return
		}
	}
	t.Fatal("the connection stayed open")
}

// No role outlives its goroutine.
func TestRolesEnd(t *testing.T) {
	checkGoroutines(t)
	prof, file := profiler(t)
	t.Run("server", func(t *testing.T) {
		addr := serve(t, pipeline.ServerConfig{Profiler: prof, Workers: 2}, map[string]pipeline.Handler{"Echo": echo})
		for range 3 {
			c := dial(t, addr)
			if _, err := c.Call(within(t), "Echo", nil); err != nil {
				t.Fatal(err)
			}
		}
		slots, err := file.Slots()
		if err != nil {
			t.Fatal(err)
		}
		kinds := map[segment.Kind]int{}
		for _, s := range slots {
			kinds[s.Kind]++
		}
		if kinds[segment.KindReader] != 3 || kinds[segment.KindWriter] != 3 || kinds[segment.KindWorker] == 0 {
			t.Errorf("roles of a running server: %v", kinds)
		}
	})
	slots, err := file.Slots()
	if err != nil {
		t.Fatal(err)
	}
	if len(slots) > 0 {
		t.Errorf("%d slots in use after Close", len(slots))
	}
}
