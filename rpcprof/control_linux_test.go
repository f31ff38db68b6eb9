package rpcprof

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"runtime/trace"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// patience bounds every wait; nothing is measured by it.
const patience = 30 * time.Second

// controlled gives a control whose library side is the test's to call.
func controlled(t testing.TB) *control {
	t.Helper()
	c, err := newControl(0xeee0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(c.close)
	return c
}

// ask enters a request as somebody outside would.
func (c *control) ask(kind, arg uint32) {
	atomic.StoreUint32(&c.w.Kind, kind)
	atomic.StoreUint32(&c.w.Arg, arg)
	atomic.StoreUint64(&c.w.ID, c.w.ID+1)
}

// A trace that is asked for comes back, and is one.
func TestTraceComes(t *testing.T) {
	p := profilerFor(t, Config{})
	if p.minder.control == nil && p.Err() != nil {
		t.Skip(p.Err())
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	seq := p.seg.Header.Seq
	before := Now()
	c, err := segment.Ask(ctx, os.Getpid(), seq, segment.RequestTrace, 20)
	if err != nil {
		t.Fatal(err)
	}
	if c.StartNS < before || c.EndNS < c.StartNS || c.EndNS > Now() {
		t.Errorf("a trace from %d to %d, asked for at %d", c.StartNS, c.EndNS, before)
	}
	b, err := segment.ReadTrace(os.Getpid(), c)
	if err != nil || uint64(len(b)) != c.Bytes || !bytes.HasPrefix(b, []byte("go 1.")) || !bytes.Contains(b[:min(16, len(b))], []byte(" trace")) {
		t.Errorf("a trace of %d bytes, %q, %v", len(b), b[:min(16, len(b))], err)
	}
	// So soon there is no second one.
	if c, err = segment.Ask(ctx, os.Getpid(), seq, segment.RequestTrace, 20); !errors.Is(err, segment.ErrDeclined) || c.Status != segment.StatusRefused || !strings.Contains(err.Error(), "10 s") {
		t.Errorf("a second trace: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := segment.ReadTrace(os.Getpid(), c); err == nil {
		t.Error("the trace outlived its profiler")
	}
	if _, err := segment.Ask(ctx, os.Getpid(), seq, segment.RequestTrace, 20); !errors.Is(err, segment.ErrNoControl) {
		t.Errorf("a closed profiler: %v", err)
	}
}

// An owner who refuses requests has no control file.
func TestControlRefused(t *testing.T) {
	p := profilerFor(t, Config{NoControl: true})
	if _, err := segment.Ask(context.Background(), os.Getpid(), p.seg.Header.Seq, segment.RequestTrace, 1); !errors.Is(err, segment.ErrNoControl) {
		t.Error(err)
	}
}

// What is not known or out of bounds is refused, and says why; nothing is traced.
func TestControlBounds(t *testing.T) {
	c := controlled(t)
	for _, tt := range []struct {
		kind, arg uint32
		why       string
	}{
		{segment.RequestNone, 1, "kind 0"},
		{segment.RequestTrace + 1, 1, "kind 2"},
		{1 << 31, 1, "kind 2147483648"},
		{segment.RequestTrace, 0, "1 to 5000 ms"},
		{segment.RequestTrace, segment.MaxTraceMS + 1, "1 to 5000 ms"},
		{segment.RequestTrace, 1<<32 - 1, "1 to 5000 ms"},
	} {
		c.ask(tt.kind, tt.arg)
		c.answer(nil)
		if c.w.Answer != c.w.ID || c.w.Status != segment.StatusRefused || !strings.Contains(c.w.MessageString(), tt.why) || trace.IsEnabled() {
			t.Errorf("%+v: status %d, %q, tracing %v", tt, c.w.Status, c.w.MessageString(), trace.IsEnabled())
		}
	}
	// A request is answered once.
	c.w.Status = 77
	c.answer(nil)
	if c.w.Status != 77 {
		t.Error("a request was answered again")
	}
}

// A service that traces itself keeps its trace.
func TestControlOwnTrace(t *testing.T) {
	var own bytes.Buffer
	if err := trace.Start(&own); err != nil {
		t.Skip(err)
	}
	c := controlled(t)
	c.ask(segment.RequestTrace, 5)
	c.answer(nil)
	if c.w.Status != segment.StatusFailed || !strings.Contains(c.w.MessageString(), "tracing") || c.trace != nil {
		t.Errorf("status %d, %q", c.w.Status, c.w.MessageString())
	}
	if !trace.IsEnabled() {
		t.Error("the service's own trace was ended")
	}
	trace.Stop()
	if !bytes.HasPrefix(own.Bytes(), []byte("go 1.")) {
		t.Error("the service's own trace is no more")
	}
}

// A trace over its bound is ended at once and is none.
func TestControlTooLong(t *testing.T) {
	f, err := segment.NewTraceFile()
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	b := &bounded{f: f, left: 10, full: make(chan struct{})}
	for _, s := range []string{"123456", "1234", "1", "1", ""} { // the tracer goes on for a while
		if n, err := b.Write([]byte(s)); n != len(s) || err != nil {
			t.Errorf("%q: %d, %v", s, n, err)
		}
	}
	select {
	case <-b.full:
	default:
		t.Error("nobody is told")
	}
	if st, err := f.Stat(); err != nil || st.Size() != 10 || b.n != 10 || !errors.Is(b.err, errFull) {
		t.Errorf("%d bytes of 10, %v", st.Size(), b.err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(es)
}

// Close while a trace is under way ends it and leaves nothing.
func TestCloseWhileTracing(t *testing.T) {
	descriptors(t) // whatever that opens for good
	fds, goroutines := descriptors(t), runtime.NumGoroutine()
	p := New(Config{})
	if p.minder.control == nil {
		_ = p.Close()
		t.Skip(p.Err())
	}
	go func() {
		_, _ = segment.Ask(context.Background(), os.Getpid(), p.seg.Header.Seq, segment.RequestTrace, segment.MaxTraceMS)
	}()
	for end := time.Now().Add(patience); !trace.IsEnabled(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no trace began")
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if trace.IsEnabled() {
		t.Error("tracing goes on")
	}
	for end := time.Now().Add(patience); descriptors(t) > fds || runtime.NumGoroutine() > goroutines; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors and %d goroutines, before %d and %d", descriptors(t), runtime.NumGoroutine(), fds, goroutines)
		}
	}
}

// Whatever is in the control file, the library does not panic, traces no longer than
// it may and no sooner again, and says what became of the request.
func FuzzControl(f *testing.F) {
	f.Add([]byte{}, uint64(1), uint32(1), uint32(1))
	f.Add([]byte{}, uint64(1), uint32(2), uint32(1))
	f.Add(bytes.Repeat([]byte{0xff}, 296), uint64(1<<63), uint32(1), uint32(1<<32-1))
	stop := make(chan struct{})
	close(stop) // a trace ends as soon as it has begun
	f.Fuzz(func(t *testing.T, page []byte, id uint64, kind, arg uint32) {
		c := controlled(t)
		copy(unsafe.Slice((*byte)(unsafe.Pointer(c.w.Control)), segment.ControlSize), page)
		began := 0
		for i := range 3 {
			c.w.ID, c.w.Kind, c.w.Arg = id+uint64(i), kind, arg
			had, last := c.trace, c.last
			c.answer(stop)
			if c.trace != had {
				began++
			}
			if trace.IsEnabled() {
				t.Fatal("a trace goes on")
			}
			if c.w.ID == last {
				continue
			}
			if c.w.Answer != c.w.ID || c.w.Status < segment.StatusDone || c.w.Status > segment.StatusFailed {
				t.Fatalf("answer %d of %d, status %d", c.w.Answer, c.w.ID, c.w.Status)
			}
			if c.w.Status != segment.StatusDone && c.w.MessageString() == "" {
				t.Fatalf("status %d without a reason", c.w.Status)
			}
		}
		if may := kind == segment.RequestTrace && arg > 0 && arg <= segment.MaxTraceMS; began > 1 || began == 1 && !may {
			t.Fatalf("%d traces of kind %d and %d ms", began, kind, arg)
		}
	})
}
