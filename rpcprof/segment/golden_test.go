package segment

import (
	"bytes"
	"compress/gzip"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden gives the segment of a golden file, in memory of its own.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func text48(s string) (b [48]byte) { copy(b[:], s); return b }

// contents is all that a Reader tells of a segment.
type contents struct {
	Methods     []string // side and name
	Conns       []Conn
	Slots       []SlotState
	Records     []Record
	Kept        []Record
	Runtime     []RuntimeSample
	Hists       map[uint32]map[int]map[int]uint64 // method, histogram, word; what is not 0
	Overwritten uint64
	Torn        uint64
	Unknown     uint64
	Skipped     []string
}

func contentsOf(t testing.TB, file []byte) (Header, contents) {
	t.Helper()
	r, err := NewReader(bounded{t, file}, int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	var c contents
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ms, err := r.Methods()
	check(err)
	c.Hists = map[uint32]map[int]map[int]uint64{}
	for id := range uint32(len(ms)) {
		c.Methods = append(c.Methods, ms[id].Side.String()+" "+ms[id].NameString())
		hs, err := r.Histograms(id)
		check(err)
		for k := range hs {
			for i, v := range hs[k] {
				if v == 0 {
					continue
				}
				if c.Hists[id] == nil {
					c.Hists[id] = map[int]map[int]uint64{}
				}
				if c.Hists[id][k] == nil {
					c.Hists[id][k] = map[int]uint64{}
				}
				c.Hists[id][k][i] = v
			}
		}
	}
	c.Conns, err = r.Conns()
	check(err)
	c.Slots, err = r.Slots()
	check(err)
	c.Records, err = r.Records(nil)
	check(err)
	c.Kept, err = r.Kept()
	check(err)
	c.Runtime, err = r.Runtime()
	check(err)
	c.Overwritten, c.Torn, c.Unknown, c.Skipped = r.Overwritten, r.Torn, r.Unknown, r.Skipped()
	return r.Header(), c
}

// same compares part by part, so that a difference is named.
func same(t *testing.T, got, want contents) {
	t.Helper()
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		a, b := g.Field(i), w.Field(i)
		if a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0 || reflect.DeepEqual(a.Interface(), b.Interface()) {
			continue
		}
		t.Errorf("%s:\n got %+v\nwant %+v", g.Type().Field(i).Name, a, b)
	}
}

// served is the golden files' i-th call: 100 ns queue, 100 decode, 300 handler, 100
// encode, 100 write.
func served(i int, id uint64) Record {
	at := int64(1000 + 1000*i)
	return Record{
		Seq: uint64(i + 1), Call: id, Parent: 7, Method: uint32(i % 2), Outcome: OK, Workers: 4,
		Stamps: [Stamps]int64{at, at + 100, at + 200, at + 500, at + 600, at + 700}, Release: at + 650, Offset: uint64(64 * i),
		Queue: 1, Worker: 5, Conn: 1 << 16, RecvTID: 11, HandlerTID: 12, WriteTID: 13, BytesIn: 64, BytesOut: 65,
		Batch: uint32(i), BatchSize: 2, BatchPos: 1, Goid: 99, TraceID: [16]byte{0xab}, SpanID: [8]byte{0xcd}, ThreadCPU: 250,
	}
}

// servedHists are the histograms of n such calls.
func servedHists(n uint64) map[int]map[int]uint64 {
	h := map[int]map[int]uint64{}
	for k, ns := range map[int]int64{0: 100, 1: 100, 2: 300, 3: 100, 4: 100, HistTotal: 700} {
		h[k] = map[int]uint64{0: n * uint64(ns), 1 + BucketFor(ns): n}
	}
	return h
}

// What the last writer of version 1 wrote is read as it was meant.
func TestGoldenV1(t *testing.T) {
	h, got := contentsOf(t, golden(t, "v1.seg.gz"))
	if h.Version != 1 || h.PID != 4711 || h.StartNS != 1000 || h.Flags != FlagGoroutines || h.TLSOff != -8 ||
		h.GM != 48 || h.GGoid != 152 || h.GStatus != 144 || h.GWaitReason != 176 || h.GSchedPC != 64 || h.GSchedBP != 96 ||
		h.MG0 != 0 || h.MCurG != 184 || h.MProcID != 64 || h.LostCalls != 1 || h.NoSlot != 2 || h.NoIdx != 3 ||
		h.ServiceString() != "golden" || h.DegradedString() != "nothing" || h.GoVersionString() != "go1.26.8" ||
		h.SectionCount != 0 || h.FailedCap != 0 || h.SlowOff != 0 || h.RuntimeCap != 0 || h.CPUEvery != 0 {
		t.Errorf("header %+v", h)
	}
	id := func(n int) uint64 { return 1<<48 | uint64(n) }
	want := contents{
		Methods: []string{"server golden.G/Get", "server golden.G/Put"},
		Conns:   []Conn{{ID: 1 << 16, Open: 1, Cookie: 77, OpenedNS: 900, Local: text48("127.0.0.1:1"), Remote: text48("127.0.0.1:2")}},
		Slots: []SlotState{
			{1, Slot{
				Call: id(12), G: 0xc000000100, Goid: 99, Method: 1, Stage: StageHandler, Kind: KindCall, Parent: 7, Conn: 1 << 16,
				Worker: 5, Queue: 1, TID: 12, Stamps: [Stamps]int64{12000, 12100, 12200},
			}},
			{5, Slot{G: 0xc000000100, Goid: 99, Kind: KindWorker, Worker: 5, Queue: 1, TID: 12, Stamps: [Stamps]int64{500}}},
		},
		Hists:       map[uint32]map[int]map[int]uint64{0: servedHists(6), 1: servedHists(5)},
		Overwritten: 4, // the fourth may be being written over
	}
	for i := 4; i < 11; i++ {
		want.Records = append(want.Records, served(i, id(i+1)))
	}
	want.Records[6].Outcome = Error
	same(t, got, want)
	if got.Slots[0].Since() != 12200 || got.Slots[1].Since() != 500 {
		t.Errorf("stages begin at %d and %d", got.Slots[0].Since(), got.Slots[1].Since())
	}
}

// make2 writes a segment of version 2 with fixed values and says what is in it.
func make2(t testing.TB, threads bool) ([]byte, contents) {
	t.Helper()
	w, err := newWriter(Options{Service: "golden", Shards: 1, Methods: 8, Conns: 4, CallSlots: 4, RoleSlots: 4, Ring: 8}, onHeap)
	if err != nil {
		t.Fatal(err)
	}
	h := w.Header
	h.Base, h.Seq, h.PID, h.StartNS, h.Flags = 0x7f0000000000, 3, 4711, 1000, FlagGoroutines
	copy(h.GoVersion[:], "go1.26.8")
	h.TLSOff, h.GM, h.GGoid, h.GStatus, h.GWaitReason, h.GSchedPC, h.GSchedBP, h.MCurG, h.MProcID = -8, 48, 152, 144, 176, 64, 96, 184, 64
	g, goid := uint64(0xc000010000), uint64(99)
	if threads {
		h.Flags, h.GoVersion, g, goid = FlagThreads, [32]byte{}, 12, 12
		h.TLSOff, h.GM, h.GGoid, h.GStatus, h.GWaitReason, h.GSchedPC, h.GSchedBP, h.MCurG, h.MProcID = 0, 0, 0, 0, 0, 0, 0, 0, 0
	}
	h.LostCalls, h.NoSlot, h.NoIdx, h.CPUEvery = 1, 2, 3, 256
	w.Degrade("nothing")
	want := contents{Hists: map[uint32]map[int]map[int]uint64{0: servedHists(6), 1: servedHists(5)}, Overwritten: 4}
	for i, side := range []Side{Server, Server, Client, Region, Task} {
		name := []string{"golden.G/Get", "golden.G/Put", "down.D/Ask", "db", "main.f"}[i]
		w.AddMethod(name, side)
		want.Methods = append(want.Methods, side.String()+" "+name)
	}
	conn := Conn{Cookie: 77, OpenedNS: 900, Local: text48("127.0.0.1:1"), Remote: text48("127.0.0.1:2")}
	conn.ID = w.OpenConn(conn)
	w.SetConnRole(conn.ID, KindReader, 4)
	closed := w.OpenConn(Conn{OpenedNS: 950})
	w.CloseConn(closed)
	conn.Open, conn.Reader = 1, 4
	want.Conns = []Conn{conn, {ID: closed, OpenedNS: 950}}

	id := func(shard, n int) uint64 { return CallID(3, shard, uint64(n)) }
	want.Slots = []SlotState{
		{1, Slot{
			Call: id(0, 12), G: g, Goid: goid, Method: 1, Stage: StageHandler, Kind: KindCall, Parent: 7, Conn: conn.ID,
			Worker: 5, Queue: 1, TID: 12, Region: 4, Stamps: [Stamps]int64{12000, 12100, 12200},
		}},
		{2, Slot{Call: id(0, 13), Method: 2, Stage: StageWire, Kind: KindCall, Parent: id(0, 12), Stamps: [Stamps]int64{12300, 12300, 12310, 12320, 12330}}},
		{5, Slot{G: g, Goid: goid, Kind: KindWorker, Worker: 5, Queue: 1, TID: 12, Stamps: [Stamps]int64{500}}},
	}
	for _, s := range want.Slots {
		w.Slots[s.Index] = s.Slot
	}
	h.CallHigh, h.RoleHigh = 4, 6
	w.Index[BucketOf(g, w.IndexBits)][0] = IndexEntry{G: g, Slot: 1}

	// The first shard: eleven calls served.
	first, second := &w.Shards[0], &w.Shards[1]
	var last Record
	for i := range 11 {
		last = served(i, id(0, i+1))
		last.Goid = goid
		if i == 10 {
			last.Outcome, last.Flags, last.Stamps[Sent] = Error, FlagCut, last.Stamps[Write]
		}
		put(first, last)
		if i >= 4 {
			want.Records = append(want.Records, last)
		}
	}
	for m, n := range []uint64{6, 5} {
		for k, words := range servedHists(n) {
			for i, v := range words {
				first.Hists(uint32(m))[k][i] = v
			}
		}
	}
	first.Head.Seq = 13
	// The second: a call made, with what the server said; one given up; a region, a task.
	made := Record{
		Call: id(1, 1), Parent: 7, Method: 2, Outcome: OK, Conn: conn.ID, BytesIn: 10, BytesOut: 20, Goid: goid, HandlerTID: 12, WriteTID: 13, RecvTID: 14,
		Stamps: [Stamps]int64{20000, 20010, 20020, 20030, 20040, 20940, 20950, 20960},
	}
	made.SetServerTiming(Timing{Call: 0x0102030405060708, Queue: 160, Decode: 16, Handler: 480, Encode: 32})
	givenUp := Record{
		Call: id(1, 2), Method: 2, Outcome: Expired, Flags: FlagCut, Offset: NoOffset, Goid: goid,
		Stamps: [Stamps]int64{30000, 30010, 30020, 30030, 30040, 31040},
	}
	region := Record{Call: id(1, 3), Parent: id(0, 11), Method: 3, Outcome: OK, Offset: NoOffset, Goid: goid, HandlerTID: 12, Stamps: [Stamps]int64{11250, 11350}}
	task := Record{Call: id(1, 4), Parent: id(0, 11), Method: 4, Outcome: OK, Offset: NoOffset, Goid: goid + 1, HandlerTID: 15, Stamps: [Stamps]int64{11300, 11900}}
	for i, rec := range []Record{made, givenUp, region, task} {
		rec.Seq = uint64(i + 1)
		put(second, rec)
		want.Records = append(want.Records, rec)
	}
	second.Head.Seq = 4
	want.Hists[2] = map[int]map[int]uint64{HistTotal: {0: 2000, 1 + BucketFor(960): 1, 1 + BucketFor(1040): 1}, HistServer: {0: 688, 1 + BucketFor(688): 1}}
	want.Hists[3] = map[int]map[int]uint64{0: {0: 100, 1 + BucketFor(100): 1}, HistTotal: {0: 100, 1 + BucketFor(100): 1}}
	for m := uint32(2); m < 4; m++ {
		for k, words := range want.Hists[m] {
			for i, v := range words {
				second.Hists(m)[k][i] = v
			}
		}
	}
	// Kept: the failed of both shards, and of method 0 three slow ones.
	last.Seq, givenUp.Seq = 11, 2
	first.Failed[0], first.Head.Failed = last, 1
	second.Failed[0], second.Head.Failed = givenUp, 1
	slow := served(2, id(0, 3)) // gone from the ring
	*first.Slow(0, 5) = SlowSet{Minute: 5, Records: [SlowKept]Record{3: slow, 4: last}}
	want.Kept = []Record{slow, last, givenUp}
	want.Runtime = []RuntimeSample{{Seq: 65, AtNS: 5000, GCCycles: 1, Goroutines: 9, Procs: 2}, {Seq: 66, AtNS: 6000, GCCycles: 2, HeapBytes: 8}}
	w.Runtime[0], w.Runtime[1], w.Runtime[2] = want.Runtime[0], want.Runtime[1], RuntimeSample{AtNS: 7000}
	return w.bytes(), want
}

// Today's writer lays out a segment as the golden one is, and it is read to what was
// written. A file that differs is another format: see FORMAT.md for what that asks for.
func TestGoldenV2(t *testing.T) {
	for name, threads := range map[string]bool{"v2.seg.gz": false, "v2threads.seg.gz": true} {
		file, want := make2(t, threads)
		if *update {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write(file)
			_ = z.Close()
			if err := os.WriteFile(filepath.Join("testdata", name), b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		old := golden(t, name)
		if i := differ(old, file); i >= 0 {
			t.Errorf("%s: today's writer differs from byte %d on", name, i)
		}
		h, got := contentsOf(t, old)
		same(t, got, want)
		if h.Version != 2 || h.Seq != 3 || h.PID != 4711 || h.CPUEvery != 256 || h.SectionCount != 6 || h.ServiceString() != "golden" ||
			threads != (h.Flags == FlagThreads) || threads == (h.Flags == FlagGoroutines) {
			t.Errorf("%s: header %+v", name, h)
		}
		timing, ok := got.Records[7].ServerTiming()
		if want := (Timing{Call: 0x0102030405060708, Queue: 160, Decode: 16, Handler: 480, Encode: 32}); !ok || timing != want {
			t.Errorf("%s: the server said %+v, %v", name, timing, ok)
		}
	}
}

// differ is where two files begin to, -1 where they do not.
func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	return -1
}

// onHeap allocates a segment in ordinary memory.
func onHeap(size int) (memory, error) {
	return memory{make([]byte, size), -1, func() {}, func() {}}, nil
}
