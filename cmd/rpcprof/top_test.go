package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// All profilers of a process are shown: calls of goroutines and of threads, which
// region they are in, and for how long they have been in their stage.
func TestTopAll(t *testing.T) {
	writer := func(flags uint32, name string, side segment.Side, fill func(*segment.Writer, *segment.Slot)) {
		w, err := segment.NewWriter(segment.Options{Service: name})
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(w.Unmap)
		w.Header.Flags |= flags
		w.Header.CallHigh = 1
		s := &w.Slots[0]
		s.Method, _ = w.AddMethod(name, side)
		s.Kind, s.Call = segment.KindCall, segment.CallID(w.Header.Seq, 0, 1)
		fill(w, s)
	}
	now := monotonicNow()
	writer(segment.FlagGoroutines, "orders.Orders/Get", segment.Server, func(w *segment.Writer, s *segment.Slot) {
		region, _ := w.AddMethod("load basket", segment.Region)
		s.G, s.Goid, s.Region, s.Stage = 0xc000000000, 77, region+1, segment.StageHandler
		s.Stamps = [segment.Stamps]int64{now - int64(10*time.Second), now - int64(9*time.Second), now - int64(8*time.Second)}
	})
	writer(segment.FlagThreads, "stock.Stock/Put", segment.Server, func(w *segment.Writer, s *segment.Slot) {
		s.G, s.Goid, s.Stage = 4711, 4711, segment.StageQueue
		s.Stamps[0] = now - int64(5*time.Second)
	})
	writer(segment.FlagGoroutines, "price.Price/Ask", segment.Client, func(w *segment.Writer, s *segment.Slot) {
		s.Goid, s.Stage = 99, segment.StageWire // waits, on no goroutine's slot
		s.Stamps[0] = now - int64(time.Second)
	})
	files, err := segment.Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	calls, err := inFlight(files)
	if err != nil || len(calls) != 3 {
		t.Fatalf("%+v %v", calls, err)
	}
	c := calls[0]
	if c.Goid != 77 || c.TID != 0 || c.Region != "load basket" || c.Stage != "handler" || c.AgeNS < 10e9 || c.StageAgeNS < 8e9 || c.StageAgeNS >= c.AgeNS {
		t.Errorf("%+v", c)
	}
	if c := calls[1]; c.Goid != 0 || c.TID != 4711 || c.Stage != "queue" {
		t.Errorf("%+v", c)
	}
	if c := calls[2]; c.Goid != 0 || c.Stage != "wire+server" || c.Side != "client" {
		t.Errorf("%+v", c)
	}
	page := (&topCmd{PID: 1, Limit: 20}).page(calls)
	for _, want := range []string{"g77  load basket\n", "t4711\n", " -\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}
