package rpcprof

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// ours counts this process's files that the library makes.
func ours(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if link, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(link, "/memfd:rpcprof") {
			n++
		}
	}
	return n
}

// Close gives back goroutine and files; a Profiler that was dropped does too.
func TestNothingLeaks(t *testing.T) {
	goroutines, files := runtime.NumGoroutine(), ours(t)
	for range 3 {
		p := New(Config{})
		if n := ours(t); n != files+2 {
			t.Errorf("%d files more, not segment and control", n-files)
		}
		_ = p.Close()
		_ = p.Close()
	}
	if n := ours(t); n != files {
		t.Errorf("%d files left after Close", n-files)
	}
	p := New(Config{NoControl: true})
	if n := ours(t); n != files+1 {
		t.Errorf("%d files more without control", n-files)
	}
	p.Begin(p.Method("m"), nil, 0).End(OK)
	runtime.KeepAlive(p)
	p = nil
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		g, f := runtime.NumGoroutine(), ours(t)
		if g <= goroutines && f == files {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d goroutines and %d files left of a Profiler that nobody holds", g-goroutines, f-files)
		}
	}
}

// The runtime's own counts are published when a Profiler begins, and count what
// the process does.
func TestRuntimePublished(t *testing.T) {
	p := profilerFor(t, Config{})
	r := readerOf(t, p)
	m := newRuntimeReader(p.seg)
	m.n = 10
	m.publish()
	var keep [][]byte
	for range 1000 {
		keep = append(keep, make([]byte, 1<<12))
	}
	runtime.GC()
	for range 100 {
		done := make(chan bool)
		go func() { done <- true }()
		<-done
	}
	m.publish()
	runtime.KeepAlive(keep)
	all, err := r.Runtime()
	if err != nil || len(all) < 2 {
		t.Fatalf("%d readings, %v", len(all), err)
	}
	a, b := all[len(all)-2], all[len(all)-1]
	if b.AllocObjects-a.AllocObjects < 1000 || b.AllocBytes-a.AllocBytes < 1<<22 || b.GCCycles-a.GCCycles < 1 || b.GCPauses <= a.GCPauses ||
		b.AtNS <= a.AtNS || b.Goroutines == 0 || b.HeapBytes < 1<<22 || b.Procs != uint64(runtime.GOMAXPROCS(0)) || b.Switches < a.Switches {
		t.Errorf("%+v\nafter %+v", b, a)
	}
}

// RPCPROF=off leaves nothing: no file, no goroutine, no record, and a reason.
func TestOff(t *testing.T) {
	files, goroutines := ours(t), runtime.NumGoroutine()
	t.Setenv("RPCPROF", "off")
	p := New(Config{})
	defer p.Close()
	if p.Err() == nil || ours(t) != files || runtime.NumGoroutine() > goroutines || p.Now() != 0 {
		t.Errorf("off is not off: %v", p.Err())
	}
	if c := p.Begin(p.Method("m"), p.Conn(nil), 0); c != nil {
		t.Error("a call was begun")
	}
	if _, err := p.Reader(); err == nil {
		t.Error("there is something to read")
	}
}

// Two profilers of a process are two segments, whose calls have different ids.
func TestTwoProfilers(t *testing.T) {
	a, b := profilerFor(t, Config{Service: "two a"}), profilerFor(t, Config{Service: "two b"})
	ids := map[uint64]bool{}
	for _, p := range []*Profiler{a, b} {
		r := readerOf(t, p)
		for range 100 {
			p.Begin(p.Method("m"), nil, 0).End(OK)
		}
		for _, rec := range records(t, r, 100) {
			ids[rec.Call] = true
		}
	}
	if len(ids) != 200 {
		t.Errorf("%d ids for 200 calls", len(ids))
	}
	found := 0
	files, err := segment.Find(os.Getpid())
	for _, f := range files {
		h := f.Header()
		if s := h.ServiceString(); s == "two a" || s == "two b" {
			found++
		}
		_ = f.Close()
	}
	if found != 2 {
		t.Errorf("%d of the two were found: %v", found, err)
	}
}
