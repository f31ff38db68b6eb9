package rpcprof

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// methodNames gives the names by id.
func methodNames(t testing.TB, r *segment.Reader) []string {
	t.Helper()
	ms, err := r.Methods()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range ms {
		out = append(out, ms[i].Side.String()+" "+ms[i].NameString())
	}
	return out
}

// A region has a name and the call that it is a part of, also a nested one.
func TestRegion(t *testing.T) {
	p := profilerFor(t, Config{})
	r := readerOf(t, p)
	Region(context.Background(), "nobody's").End()
	c := p.Begin(p.Method("m"), nil, 0)
	ctx := c.Context(context.Background())
	outer := Region(ctx, "outer")
	inner := Region(ctx, "inner")
	if at := c.slot.Region; methodNames(t, r)[at-1] != "region inner" {
		t.Errorf("the slot is in region %d", at)
	}
	inner.End()
	outer.End()
	if c.slot.Region != 0 {
		t.Error("the slot is still in a region")
	}
	id := c.rec.Call
	late := Region(ctx, "late")
	c.End(OK)
	late.End()
	Region(ctx, "after").End()
	names := methodNames(t, r)
	var got []string
	for _, rec := range records(t, r, 4) {
		if rec.Call == id {
			continue
		}
		got = append(got, names[rec.Method])
		if rec.Parent != id || rec.Stamps[segment.Ended] < rec.Stamps[segment.Begun] || rec.Stamps[segment.Begun] == 0 {
			t.Errorf("%s: %+v", names[rec.Method], rec)
		}
	}
	slices.Sort(got) // the goroutine may have been on several Ps, each with a ring of its own
	if s := strings.Join(got, ", "); s != "region inner, region late, region outer" {
		t.Errorf("regions %s", s)
	}
}

// Without a context that carries the call, the goroutine tells.
func TestRegionByGoroutine(t *testing.T) {
	p := profilerFor(t, Config{})
	if p.off == nil {
		t.Skip("goroutines are not known: ", p.Err())
	}
	r := readerOf(t, p)
	c := p.Begin(p.Method("m"), nil, 0)
	c.Start(nil, 0)
	Region(context.Background(), "here").End()
	var wg sync.WaitGroup
	wg.Go(func() { Region(context.Background(), "elsewhere").End() })
	wg.Wait()
	if rec := records(t, r, 1)[0]; rec.Parent != c.rec.Call {
		t.Errorf("the region is a part of %x", rec.Parent)
	}
	c.Release(0)
	Region(context.Background(), "afterwards").End()
	c.End(OK)
	records(t, r, 1)
}

// However many names there are, they are bounded and nothing is lost.
func TestRegionNames(t *testing.T) {
	p := profilerFor(t, Config{Methods: 16})
	r := readerOf(t, p)
	c := p.Begin(p.Method("m"), nil, 0)
	ctx := c.Context(context.Background())
	for i := range 50 {
		Region(ctx, fmt.Sprint("region", i)).End()
	}
	c.End(OK)
	n := 0
	for _, name := range methodNames(t, r) {
		if strings.HasPrefix(name, "region region") {
			n++
		}
	}
	if n == 0 || n > 5 {
		t.Errorf("%d names of regions in a table for 16 methods", n)
	}
	records(t, r, 51)
	if m := p.Method("another"); m.Name() != "another" {
		t.Error("regions have used up the methods")
	}
}

// A goroutine that a handler starts belongs to its call; what it starts does too.
func TestGo(t *testing.T) {
	p := profilerFor(t, Config{})
	r := readerOf(t, p)
	c := p.Begin(p.Method("m"), nil, 0)
	ctx := c.Context(context.Background())
	done := make(chan bool)
	started := make(chan bool)
	Go(ctx, func() { started <- true; <-started; close(done) })
	<-started
	slots, err := r.Slots()
	if err != nil || len(slots) != 2 {
		t.Fatalf("%d slots in use, not the call's and the goroutine's: %v", len(slots), err)
	}
	for _, s := range slots {
		if s.Call != c.rec.Call && (s.Parent != c.rec.Call || p.off != nil && s.G == 0) {
			t.Errorf("the goroutine's slot is %+v", s)
		}
	}
	started <- true
	<-done
	for end := time.Now().Add(30 * time.Second); len(slots) != 1; slots, _ = r.Slots() {
		if time.Now().After(end) {
			t.Fatalf("%d slots in use after the goroutine has ended", len(slots))
		}
	}
	rec := records(t, r, 1)[0]
	if name := methodNames(t, r)[rec.Method]; rec.Parent != c.rec.Call || !strings.HasPrefix(name, "task ") || !strings.Contains(name, "TestGo") {
		t.Errorf("%s of %x", name, rec.Parent)
	}
	c.End(OK)
	Go(ctx, func() { done = make(chan bool); close(done); started <- true }) // of no call any more
	<-started
	Go(context.Background(), func() { started <- true })
	<-started
	records(t, r, 1)
}

func TestRegionAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	p := profilerFor(t, Config{})
	c := p.Begin(p.Method("m"), nil, 0)
	defer c.End(OK)
	c.Start(nil, 0)
	ctx := c.Context(context.Background())
	name := fmt.Sprint("made", " up")
	if n := testing.AllocsPerRun(2000, func() {
		Region(ctx, name).End()
		Region(context.Background(), "fixed").End()
	}); n != 0 {
		t.Errorf("a region allocates %v times", n)
	}
}

func BenchmarkRegion(b *testing.B) {
	p := New(Config{})
	defer p.Close()
	c := p.Begin(p.Method("m"), nil, 0)
	ctx := c.Context(context.Background())
	b.ReportAllocs()
	for b.Loop() {
		Region(ctx, "db").End()
	}
}

func BenchmarkClientCall(b *testing.B) {
	p := New(Config{})
	defer p.Close()
	m, conn, ctx := p.Client("m"), p.Conn(nil), context.Background()
	b.ReportAllocs()
	for b.Loop() {
		c := p.BeginClient(ctx, m, 0)
		c.Via(conn)
		for s := Write; s < stamps; s++ {
			c.Stamp(s)
		}
		c.End(OK)
	}
}
