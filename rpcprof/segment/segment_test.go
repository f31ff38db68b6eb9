package segment

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
)

// small makes a segment of modest tables and a ring of 8.
func small(t testing.TB) *Writer {
	t.Helper()
	w, err := NewWriter(Options{Service: "test", Shards: 1, Methods: 2, Conns: 3, CallSlots: 4, RoleSlots: 4, Ring: 8})
	if err != nil && !errors.Is(err, ErrHeap) {
		t.Fatal(err)
	}
	t.Cleanup(w.Unmap)
	return w
}

func (w *Writer) bytes() []byte { return w.mem.mem }

func reader(t testing.TB, w *Writer) *Reader {
	t.Helper()
	r, err := NewReader(bytes.NewReader(w.bytes()), int64(len(w.bytes())))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// put appends a record as the library does.
func put(s *Shard, rec Record) {
	head := s.Head.Head
	rec.Seq = head + 1
	s.Ring[head%uint64(len(s.Ring))] = rec
	atomic.SwapUint64(&s.Head.Head, head+1) // what follows stays behind
}

func sample(n int64) Record {
	return Record{
		Call: uint64(n), Method: 1, Outcome: OK, Stamps: [Stamps]int64{n, n + 1, n + 2, n + 3, n + 4, n + 5},
		BatchSize: 2, BatchPos: 1, Offset: NoOffset, TraceID: [16]byte{15: 7}, ThreadCPU: 9,
	}
}

func TestRoundTrip(t *testing.T) {
	w := small(t)
	a, okA := w.AddMethod("a.A/One", Server)
	b, okB := w.AddMethod("b.B/\x1b[31mTwo", Client)
	again, okAgain := w.AddMethod("a.A/One", Server)
	if a != 0 || b != 1 || again != a || !okA || !okB || !okAgain {
		t.Fatalf("methods got %d, %d and %d", a, b, again)
	}
	if _, ok := w.AddMethod("c.C/Three", Server); ok || w.Header.MethodsRefused != 1 {
		t.Fatal("a method beyond the table was taken")
	}
	conn := w.OpenConn(Conn{Cookie: 5, Remote: [48]byte{'x'}})
	w.SetConnRole(conn, KindReader, 6)
	w.Degrade("one")
	w.Degrade("two")
	w.Slots[1] = Slot{Call: 77, Method: 1, Kind: KindCall, Stage: StageHandler, G: 1, Goid: 2}
	w.Slots[6] = Slot{Kind: KindReader, Conn: conn}
	w.Header.CallHigh, w.Header.RoleHigh = 4, 8
	for i := range w.Shards {
		w.Shards[i].Hists(1)[HistTotal][1] = 3
	}
	put(&w.Shards[0], sample(10))
	put(&w.Shards[1], sample(20))

	r := reader(t, w)
	h := r.Header()
	if h.ServiceString() != "test" || h.DegradedString() != "one; two" {
		t.Errorf("service %q, degraded %q", h.ServiceString(), h.DegradedString())
	}
	ms, err := r.Methods()
	if err != nil || len(ms) != 2 || ms[0].NameString() != "a.A/One" || ms[1].NameString() != "b.B/?[31mTwo" || ms[1].Side != Client {
		t.Errorf("methods %v, %v", ms, err)
	}
	cs, err := r.Conns()
	if err != nil || len(cs) != 1 || cs[0].ID != conn || cs[0].Open != 1 || cs[0].Cookie != 5 || cs[0].Reader != 6 || cs[0].RemoteString() != "x" {
		t.Errorf("connections %v, %v", cs, err)
	}
	slots, err := r.Slots()
	if err != nil || len(slots) != 2 || slots[0].Index != 1 || slots[0].Slot != w.Slots[1] || slots[1].Index != 6 || slots[1].Slot != w.Slots[6] {
		t.Errorf("slots %v, %v", slots, err)
	}
	recs, err := r.Records(nil)
	x, y := sample(10), sample(20)
	x.Seq, y.Seq = 1, 1
	if err != nil || len(recs) != 2 || recs[0] != x || recs[1] != y {
		t.Errorf("records %v, %v", recs, err)
	}
	hs, err := r.Histograms(1)
	if err != nil || hs[HistTotal][1] != 3*uint64(len(w.Shards)) {
		t.Errorf("histograms %v", err)
	}
	if _, err := r.Histograms(2); !errors.Is(err, ErrCorrupt) {
		t.Errorf("histograms of a method beyond the table: %v", err)
	}
	w.Close()
	if _, _, _, closed, err := r.Counts(); !closed || err != nil {
		t.Errorf("closed %v, %v", closed, err)
	}
}

// A connection's entry is reused as late as can be, under another id.
func TestConnReuse(t *testing.T) {
	w := small(t)
	var ids []uint32
	for range 3 {
		ids = append(ids, w.OpenConn(Conn{}))
	}
	if w.OpenConn(Conn{}) != 0 {
		t.Fatal("a connection beyond the table was taken")
	}
	for _, id := range []uint32{ids[1], ids[1], ids[0], 0, 1 << 20, math.MaxUint32} {
		w.CloseConn(id)
		w.SetConnRole(id|0xffff, KindReader, 1)
	}
	r := reader(t, w)
	if cs, _ := r.Conns(); len(cs) != 3 || cs[0].Open != 0 || cs[1].Open != 0 || cs[2].Open != 1 {
		t.Fatalf("connections %v", cs)
	}
	x, y := w.OpenConn(Conn{}), w.OpenConn(Conn{})
	if x&0xffff != ids[1]&0xffff || y&0xffff != ids[0]&0xffff || x == ids[1] || y == ids[0] || w.OpenConn(Conn{}) != 0 {
		t.Fatalf("%x closed, %x opened", ids, []uint32{x, y})
	}
	w.CloseConn(ids[0]) // the older id means nothing any more
	if w.OpenConn(Conn{}) != 0 {
		t.Fatal("an id of the past closed a connection")
	}
}

// Records that the ring lost are counted, to the record.
func TestOverwrite(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 100} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w := small(t)
			r := reader(t, w)
			for i := range n {
				put(&w.Shards[0], sample(int64(i+1)))
			}
			recs, err := r.Records(nil)
			if err != nil || r.Torn != 0 || len(recs)+int(r.Overwritten) != n {
				t.Fatalf("%d records and %d overwritten of %d, %d torn, %v", len(recs), r.Overwritten, n, r.Torn, err)
			}
			if want := min(n, 7); n > 8 && len(recs) != want { // the eighth may be being overwritten
				t.Fatalf("%d records of a ring of 8", len(recs))
			}
			for i, rec := range recs {
				if want := uint64(n - len(recs) + i + 1); rec.Call != want {
					t.Fatalf("record %d is of call %d, not %d", i, rec.Call, want)
				}
			}
			put(&w.Shards[0], sample(1))
			if recs, err = r.Records(nil); err != nil || len(recs) != 1 {
				t.Fatalf("then %d records, %v", len(recs), err)
			}
		})
	}
}

func TestDamagedRecords(t *testing.T) {
	w := small(t)
	s := &w.Shards[0]
	for i, damage := range []func(*Record){
		func(r *Record) { r.Method = math.MaxUint32 },
		func(r *Record) { r.BatchPos = 3 },
		func(r *Record) { r.Stamps[Handled] = 1 },
		func(r *Record) { r.Stamps = [Stamps]int64{} },
		func(r *Record) { r.Stamps[Recv] = -5 },
	} {
		rec := sample(10)
		damage(&rec)
		put(s, rec)
		r := reader(t, w)
		if recs, err := r.Records(nil); err != nil || len(recs) != 0 || r.Torn != uint64(i+1) {
			t.Fatalf("damage %d: %d records, %d torn, %v", i, len(recs), r.Torn, err)
		}
	}
	r := reader(t, w)
	if err := r.Skip(); err != nil {
		t.Fatal(err)
	}
	s.Head.Head = 2
	if _, err := r.Records(nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a head that goes back: %v", err)
	}
	s.Head.Head = math.MaxUint64
	if recs, err := r.Records(nil); err != nil || len(recs) != 0 {
		t.Errorf("a head beyond all: %d records, %v", len(recs), err)
	}
	w.Slots[0] = Slot{Kind: KindCall, Call: 1, Method: 99}
	w.Slots[1] = Slot{Kind: Kinds, Call: 1}
	w.Slots[2] = Slot{Kind: KindReader}
	w.Slots[3] = Slot{Kind: KindCall, Call: 1, Stage: Stages}
	w.Header.CallHigh, w.Header.RoleHigh = math.MaxUint32, math.MaxUint32
	if slots, err := r.Slots(); err != nil || len(slots) != 0 {
		t.Errorf("slots that contradict themselves: %v, %v", slots, err)
	}
}

func TestHeaders(t *testing.T) {
	tests := []struct {
		name string
		edit func(*Header)
		want error
	}{
		{"magic", func(h *Header) { h.Magic++ }, ErrNotSegment},
		{"version", func(h *Header) { h.Version++ }, ErrVersion},
		{"file size", func(h *Header) { h.FileSize++ }, ErrCorrupt},
		{"header size", func(h *Header) { h.Size = 0 }, ErrCorrupt},
		{"methods offset", func(h *Header) { h.MethodsOff = math.MaxUint32 &^ 63 }, ErrCorrupt},
		{"methods in the header", func(h *Header) { h.MethodsOff = 0 }, ErrCorrupt},
		{"methods count", func(h *Header) { h.MethodCap = math.MaxUint32 }, ErrCorrupt},
		{"methods past the shard", func(h *Header) { h.MethodCap = MaxMethods }, ErrCorrupt},
		{"conns offset", func(h *Header) { h.ConnsOff++ }, ErrCorrupt},
		{"conns count", func(h *Header) { h.ConnCap = math.MaxUint32 }, ErrCorrupt},
		{"slots offset", func(h *Header) { h.SlotsOff = uint32(h.FileSize) &^ 63 }, ErrCorrupt},
		{"slots count", func(h *Header) { h.SlotCap = math.MaxUint32 }, ErrCorrupt},
		{"call slots", func(h *Header) { h.CallSlots = h.SlotCap + 1 }, ErrCorrupt},
		{"index bits 0", func(h *Header) { h.IndexBits = 0 }, ErrCorrupt},
		{"index bits 64", func(h *Header) { h.IndexBits = 64 }, ErrCorrupt},
		{"index bits 20", func(h *Header) { h.IndexBits = 20 }, ErrCorrupt},
		{"index offset", func(h *Header) { h.IndexOff = 1 }, ErrCorrupt},
		{"shards offset", func(h *Header) { h.ShardsOff = math.MaxUint64 &^ 63 }, ErrCorrupt},
		{"no shards", func(h *Header) { h.ShardCap = 0 }, ErrCorrupt},
		{"shards count", func(h *Header) { h.ShardCap = math.MaxUint32 }, ErrCorrupt},
		{"shard size 0", func(h *Header) { h.ShardSize = 0 }, ErrCorrupt},
		{"shard size", func(h *Header) { h.ShardSize = math.MaxUint64 }, ErrCorrupt},
		{"shard size overflow", func(h *Header) { h.ShardSize = 1 << 63; h.ShardCap = 2 }, ErrCorrupt},
		{"ring 0", func(h *Header) { h.RingCap = 0 }, ErrCorrupt},
		{"ring not a power of two", func(h *Header) { h.RingCap = 3 }, ErrCorrupt},
		{"ring size", func(h *Header) { h.RingCap = 1 << 31 }, ErrCorrupt},
		{"ring over the head", func(h *Header) { h.RingOff = 0 }, ErrCorrupt},
		{"ring offset", func(h *Header) { h.RingOff = math.MaxUint32 &^ 63 }, ErrCorrupt},
		{"histograms offset", func(h *Header) { h.HistOff = math.MaxUint32 &^ 63 }, ErrCorrupt},
		{"histograms count", func(h *Header) { h.HistsPerMethod++ }, ErrCorrupt},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := small(t)
			tt.edit(w.Header)
			_, err := NewReader(bytes.NewReader(w.bytes()), int64(len(w.bytes())))
			if !errors.Is(err, tt.want) {
				t.Errorf("%v, not %v", err, tt.want)
			}
		})
	}
	w := small(t)
	b := w.bytes()
	for _, n := range []int64{-1, 0, 8, HeaderSize - 1, MaxFileSize + 1, math.MaxInt64} {
		if _, err := NewReader(bytes.NewReader(b), n); !errors.Is(err, ErrNotSegment) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if _, err := NewReader(bytes.NewReader(b[:HeaderSize]), int64(len(b))); err != nil {
		t.Errorf("tables that end early show when they are read, not before: %v", err)
	}
	r, _ := NewReader(bytes.NewReader(b[:HeaderSize]), int64(len(b)))
	if _, err := r.Records(nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a file that ends early: %v", err)
	}
	if _, err := NewReader(bytes.NewReader(b[:10]), HeaderSize); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a header that ends early: %v", err)
	}
}

// Options of any size give a segment that its reader accepts.
func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{}, {Shards: 1, Methods: 1, Conns: 1, CallSlots: 1, RoleSlots: 1, Ring: 1},
		{Shards: 64, Methods: MaxMethods}, {Shards: MaxShards}, {Shards: 16, Ring: math.MaxInt},
		{Service: string(bytes.Repeat([]byte("s"), 200))},
	} {
		w, err := NewWriter(o)
		if w == nil || err != nil && !errors.Is(err, ErrHeap) {
			t.Fatalf("%+v: %v", o, err)
		}
		if !errors.Is(err, ErrHeap) {
			_ = reader(t, w)
		}
		w.Unmap()
		w.Unmap()
	}
}

func TestNames(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "größe": "größe", "a\x1b[2Jb": "a?[2Jb", "\xff\xfe": "??",
		"c1\u009b": "c1??", "rtl\u202e": "rtl???", "": "",
	} {
		b := []byte(in)
		if sanitize(b); string(b) != want {
			t.Errorf("%q is shown as %q", in, b)
		}
	}
	m := Method{Len: math.MaxUint32}
	if n := len(m.NameString()); n != len(m.Name) {
		t.Errorf("a name of %d bytes", n)
	}
}

// bounded fails the test when it is read outside of its size.
type bounded struct {
	t    testing.TB
	file []byte
}

func (b bounded) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > int64(len(b.file)) {
		b.t.Errorf("read of %d bytes at %d of %d", len(p), off, len(b.file))
	}
	return bytes.NewReader(b.file).ReadAt(p, off)
}
