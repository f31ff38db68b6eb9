package segment

import (
	"errors"
	"math"
	"slices"
	"testing"
	"unsafe"
)

// forged is the header of a segment of that many shards and records each, whose file
// is as large as it says and nowhere.
func forged(t testing.TB, shards, ring int) *meter {
	t.Helper()
	var mem []byte
	w, err := newWriter(Options{Shards: shards, Methods: 4, Conns: 4, CallSlots: 4, RoleSlots: 4, Ring: ring}, func(size int) (memory, error) {
		mem = make([]byte, size)
		return memory{mem, -1, func() {}, func() {}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.AddMethod("m", Server)
	return &meter{t: t, file: mem[:w.Header.ShardsOff], size: int64(len(mem))}
}

// plausible makes every ring full of records that look right, as far as a head that
// is read anew each time has come.
func plausible(m *meter, head func() uint64) {
	h := *(*Header)(unsafe.Pointer(&m.file[0]))
	m.live = func(off int64, b []byte) {
		in := uint64(off) - h.ShardsOff
		if uint64(off) < h.ShardsOff {
			return
		}
		switch in %= h.ShardSize; {
		case in == 0 && len(b) >= 8:
			s := (*ShardHead)(unsafe.Pointer(&b[0]))
			s.Head = head()
			s.Failed = s.Head
		case in >= uint64(h.RingOff) && in < uint64(h.RingOff)+uint64(h.RingCap)*RecordSize && len(b) >= RecordSize:
			recs := unsafe.Slice((*Record)(unsafe.Pointer(&b[0])), len(b)/RecordSize)
			for i := range recs {
				place := (in-uint64(h.RingOff))/RecordSize + uint64(i)
				recs[i] = Record{Seq: place + 1, Call: 1, Outcome: OK, Stamps: [Stamps]int64{1, 2}}
			}
		}
	}
}

// A reading ends however fast the heads run ahead, or fall, while it goes on; what it
// reads is no more than what was there when it began.
func TestHostileHeads(t *testing.T) {
	const ring = 1 << 12
	for name, step := range map[string]func(uint64) uint64{
		"still":       func(uint64) uint64 { return ring },
		"one ahead":   func(n uint64) uint64 { return ring + n },
		"runs":        func(n uint64) uint64 { return n * ring },
		"leaps":       func(n uint64) uint64 { return n << 40 },
		"backwards":   func(n uint64) uint64 { return 1<<40 - n*1000 },
		"to and fro":  func(n uint64) uint64 { return n % 2 * math.MaxUint64 },
		"at the end":  func(n uint64) uint64 { return math.MaxUint64 - n%3 },
		"wraps":       func(n uint64) uint64 { return math.MaxUint64 - 5 + n },
		"over a half": func(n uint64) uint64 { return 1<<63 + n },
	} {
		t.Run(name, func(t *testing.T) {
			m := forged(t, 3, ring)
			n := uint64(0)
			plausible(m, func() uint64 { n++; return step(n) })
			r, err := NewReader(m, m.size)
			if err != nil {
				t.Fatal(err)
			}
			var recs []Record
			for range 3 {
				before := m.read
				recs, err = r.Records(recs[:0])
				if err != nil && !errors.Is(err, ErrCorrupt) {
					t.Error(err)
				}
				shards := len(r.last)
				if len(recs) > shards*ring {
					t.Errorf("%d records of %d rings of %d", len(recs), shards, ring)
				}
				// A ring, heads around each run of it, and a header a shard.
				if limit := int64(shards) * (ring*RecordSize + (ring/maxRun+2)*ShardHeadSize + HeaderSize + MethodSize*4); m.read-before > limit {
					t.Errorf("%d bytes read, not %d at most", m.read-before, limit)
				}
			}
		})
	}
}

// The largest ring that is accepted, full, is read within a stated amount of memory:
// what is handed out, and what append needs to come there.
func TestHostileMemory(t *testing.T) {
	const ring = 1 << 16
	m := forged(t, 1, ring)
	plausible(m, func() uint64 { return ring })
	var recs []Record
	got := allocated(func() {
		r, err := NewReader(m, m.size)
		if err != nil {
			t.Fatal(err)
		}
		if recs, err = r.Records(nil); err != nil {
			t.Fatal(err)
		}
	})
	if len(recs) != 2*(ring-1) { // of each of the two the oldest may be being written
		t.Errorf("%d records", len(recs))
	}
	if limit := uint64(6 * 2 * ring * RecordSize); got > limit {
		t.Errorf("%d bytes allocated for %d records, not %d at most", got, len(recs), limit)
	}
	h := (*Header)(unsafe.Pointer(&m.file[0]))
	h.ShardCap, h.RingCap, h.ShardSize = 1024, 2048, 1<<20
	if acceptance(m) == nil {
		t.Errorf("%d records were accepted", h.ShardCap*h.RingCap)
	}
}

// acceptance is NewReader's error.
func acceptance(m *meter) error {
	_, err := NewReader(m, m.size)
	return err
}

// Kept calls of any minute, number and time are sorted and no more than the sets
// hold; those of another method than their set's are not taken.
func TestHostileKept(t *testing.T) {
	w, err := newWriter(Options{Shards: 2, Methods: 3, Conns: 1, CallSlots: 1, RoleSlots: 1, Ring: 8}, onHeap)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		w.AddMethod(name, Server)
	}
	minutes := []int64{math.MinInt64, -1, 1, math.MaxInt64, 0}
	id := uint64(0)
	for i := range w.Shards {
		w.Shards[i].Head.Failed = math.MaxUint64
		for k := range w.Shards[i].slow {
			set := &w.Shards[i].slow[k]
			set.Minute = minutes[(i+k)%len(minutes)]
			for n := range set.Records {
				id++
				set.Records[n] = Record{Seq: math.MaxUint64, Call: id, Method: uint32(n % 4), Outcome: Error, Stamps: [Stamps]int64{1, maxCall - int64(id%5)}}
			}
			set.Records[5].Stamps = [Stamps]int64{0x7ff8000000000001, math.MinInt64}
			set.Records[6].Stamps = [Stamps]int64{}
			set.Records[7].Stamps = [Stamps]int64{1, math.MaxInt64} // no time of a call
		}
	}
	r, err := NewReader(w, w.Size())
	if err != nil {
		t.Fatal(err)
	}
	recs, err := r.Kept()
	if err != nil || len(recs) == 0 || len(recs) > 3*SlowMinutes*SlowKept {
		t.Errorf("%d records, %v", len(recs), err)
	}
	if !slices.IsSortedFunc(recs, func(a, b Record) int { return int(min(1, max(-1, a.Stamps[0]-b.Stamps[0]))) }) {
		t.Error("not by when they began")
	}
	for i := range recs {
		if recs[i].Method > 2 || recs[i].Stamps[1] < 0 || recs[i].Stamps[0] == 0 {
			t.Errorf("kept %+v", recs[i])
		}
	}
}

// Names of methods, connections and the service may be any bytes; what is shown is
// printable.
func TestHostileNames(t *testing.T) {
	evil := []byte("\x1b]0;x\x07\x1b[2J\xff\xfe\xc3\x28\u202e\u009b31m\r\n\x00hidden\x7f")
	file, _ := make2(t, false)
	w := view(file)
	h := w.Header
	for _, b := range [][]byte{h.Service[:], h.GoVersion[:], h.Degraded[:], h.Sections[0].Name[:], w.Conns[0].Local[:], w.Conns[0].Remote[:], w.Methods[0].Name[:]} {
		for i := range b {
			b[i] = evil[i%len(evil)]
		}
	}
	for i := range w.Methods {
		w.Methods[i].Len = math.MaxUint32 - uint32(i)
		w.Methods[i].Side = Side(math.MaxUint32 - i)
	}
	takeBounded(t, "names", &meter{t: t, file: file, size: int64(len(file))})
}
