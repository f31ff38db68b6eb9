package segment

import (
	"sync/atomic"
	"testing"
)

// A segment in ordinary memory is read while it is written, as it is where nothing can
// be shared: each record is whole, and the race detector has nothing to say.
func TestReadWithin(t *testing.T) {
	w, err := newWriter(Options{Shards: 1, Methods: 2, Conns: 2, CallSlots: 4, RoleSlots: 4, Ring: 64}, onHeap)
	if err != nil {
		t.Fatal(err)
	}
	w.AddMethod("m", Server)
	const n = 20_000
	var done atomic.Bool
	go func() {
		defer done.Store(true)
		for i := range int64(n) {
			put(&w.Shards[0], Record{Call: uint64(i + 1), Outcome: OK, Stamps: [Stamps]int64{i + 1, i + 2, i + 3, i + 4, i + 5, i + 6}, Goid: uint64(i + 1)})
			w.Slots[1] = Slot{Call: uint64(i + 1), Kind: KindCall, Stage: 1, Stamps: [Stamps]int64{i + 1}}
			w.Shards[0].Hists(0)[HistTotal][1]++
			w.CloseConn(w.OpenConn(Conn{OpenedNS: i}))
		}
	}()
	r, err := NewReader(w, w.Size())
	if err != nil {
		t.Fatal(err)
	}
	var recs []Record
	seen := 0
	for last := false; !last; {
		last = done.Load()
		if recs, err = r.Records(recs[:0]); err != nil {
			t.Fatal(err)
		}
		seen += len(recs)
		for i := range recs {
			if rec := &recs[i]; rec.Goid != rec.Call || rec.Stamps[Sent] != int64(rec.Call)+5 {
				t.Fatalf("a record of two calls: %+v", rec)
			}
		}
		_, err1 := r.Slots()
		_, err2 := r.Conns()
		_, err3 := r.Histograms(0)
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatal(err1, err2, err3)
		}
	}
	if r.Torn != 0 || seen == 0 || uint64(seen)+r.Overwritten != n {
		t.Errorf("%d records, %d overwritten, %d torn of %d", seen, r.Overwritten, r.Torn, n)
	}
}
