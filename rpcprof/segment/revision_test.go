package segment

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unsafe"
)

// later makes of the golden segment one of a later revision: a section, a side, an
// outcome and flags that this reader does not know.
func later(t testing.TB) ([]byte, contents) {
	t.Helper()
	file, want := make2(t, false)
	edit := bytes.Clone(file)
	w := view(edit)
	h := w.Header
	h.Revision = Revision + 7
	h.Flags |= 1 << 20
	h.Sections[h.SectionCount] = Section{Name: [16]byte{'f', 'u', 't', 'u', 'r', 'e'}, Off: 4096, Size: 64}
	h.SectionCount++
	edit[HeaderSize-1] = 0xff // a field in the header's reserved end
	w.Methods[5] = Method{Side: Sides + 2, Len: 5, Name: [120]byte{'e', 'v', 'e', 'n', 't'}}
	h.MethodCount = 6
	w.Shards[1].Hists(5)[HistTotal] = Histogram{0: 10, 1: 1}
	strange := served(0, 1)
	strange.Method = 5
	put(&w.Shards[1], strange)
	strange = served(1, 2)
	strange.Outcome = Outcomes + 1
	put(&w.Shards[1], strange)
	flagged := served(2, 3)
	flagged.Flags = 0x80
	put(&w.Shards[1], flagged)
	flagged.Seq = 7
	strange.Seq = 6
	w.Shards[1].Failed[1], w.Shards[1].Head.Failed = strange, 2
	w.Slots[3] = Slot{Call: 5, Kind: KindCall, Method: 5, Stage: 1, Stamps: [Stamps]int64{9}}
	w.Slots[6] = Slot{Kind: Kinds, Stamps: [Stamps]int64{9}}
	w.Slots[7] = Slot{Kind: KindReader, Flags: 1 << 9, Stamps: [Stamps]int64{9}}
	h.RoleHigh = 8

	want.Methods = append(want.Methods, "unknown event")
	want.Hists[5] = map[int]map[int]uint64{HistTotal: {0: 10, 1: 1}}
	want.Records = append(want.Records, flagged)
	want.Slots = append(want.Slots, SlotState{7, w.Slots[7]})
	want.Unknown = 2
	want.Skipped = []string{`section "future" of 64 bytes`, "1 methods of a side not known", "2 records of an outcome or a side not known"}
	return edit, want
}

// view is a Writer of a segment that exists already.
func view(mem []byte) *Writer {
	h := (*Header)(unsafe.Pointer(&mem[0]))
	w := &Writer{Header: h, mem: memory{mem: mem}, IndexBits: h.IndexBits}
	w.Methods = table[Method](mem, uint64(h.MethodsOff), int(h.MethodCap))
	w.Conns = table[Conn](mem, uint64(h.ConnsOff), int(h.ConnCap))
	w.Slots = table[Slot](mem, uint64(h.SlotsOff), int(h.SlotCap))
	w.Index = table[Bucket](mem, uint64(h.IndexOff), 1<<h.IndexBits)
	w.Runtime = table[RuntimeSample](mem, uint64(h.RuntimeOff), int(h.RuntimeCap))
	for i := range uint64(h.ShardCap) {
		base := h.ShardsOff + i*h.ShardSize
		w.Shards = append(w.Shards, Shard{
			Head:   (*ShardHead)(unsafe.Pointer(&mem[base])),
			Ring:   table[Record](mem, base+uint64(h.RingOff), int(h.RingCap)),
			Failed: table[Record](mem, base+uint64(h.FailedOff), int(h.FailedCap)),
			slow:   table[SlowSet](mem, base+uint64(h.SlowOff), int(h.MethodCap)*SlowMinutes),
			hists:  table[Histogram](mem, base+uint64(h.HistOff), int(h.MethodCap)*HistsPerMethod),
		})
	}
	return w
}

// What a later revision adds is skipped, said and counted; nothing else is lost.
func TestLaterRevision(t *testing.T) {
	file, want := later(t)
	h, got := contentsOf(t, file)
	same(t, got, want)
	if h.Revision != Revision+7 {
		t.Errorf("revision %d", h.Revision)
	}
}

// A method of a side not known that is entered while a segment is read is known to
// be one when its first record is.
func TestUnknownSideMeanwhile(t *testing.T) {
	w := small(t)
	r := reader(t, w)
	w.AddMethod("a", Server)
	put(&w.Shards[0], Record{Call: 1, Method: 0, Outcome: OK, Stamps: [Stamps]int64{1, 2}})
	if recs, err := r.Records(nil); len(recs) != 1 || err != nil {
		t.Fatalf("%d records, %v", len(recs), err)
	}
	w.AddMethod("b", Sides)
	put(&w.Shards[0], Record{Call: 2, Method: 1, Outcome: OK, Stamps: [Stamps]int64{1, 2}})
	if recs, err := r.Records(nil); len(recs) != 0 || err != nil || r.Unknown != 1 {
		t.Fatalf("%d records, %d unknown, %v", len(recs), r.Unknown, err)
	}
}

// A version that is not known is refused, with both in the message.
func TestLaterVersion(t *testing.T) {
	for _, v := range []uint32{0, Version + 1, 1 << 31} {
		file, _ := make2(t, false)
		view(file).Header.Version = v
		_, err := NewReader(bounded{t, file}, int64(len(file)))
		if !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "1 to 2") {
			t.Errorf("version %d: %v", v, err)
		}
	}
}

// Slow calls are those of all shards, eight a minute, of the latest minutes.
func TestKeptMerges(t *testing.T) {
	w, err := newWriter(Options{Shards: 3, Methods: 2, Conns: 1, CallSlots: 1, RoleSlots: 1, Ring: 8}, onHeap)
	if err != nil {
		t.Fatal(err)
	}
	w.AddMethod("m", Server)
	var want []uint64
	on := map[int64][]int{1: {3}, 2: {3}, 3: {2}, 4: {2}, 5: {0, 1, 2}, 6: {0, 1, 2}} // shard 3 has been idle since
	for minute := int64(1); minute <= 6; minute++ {
		for _, i := range on[minute] {
			set := w.Shards[i].Slow(0, minute)
			set.Minute = minute
			for k := range set.Records {
				n := int64(k*len(w.Shards) + i)
				id := uint64(minute*100 + n)
				begun := minute*1e6 + int64(id)
				set.Records[k] = Record{Seq: 1, Call: id, Outcome: OK, Stamps: [Stamps]int64{begun, begun + 10 + n}}
			}
		}
	}
	for _, minute := range []uint64{3, 4} {
		for n := uint64(2); n < 32; n += 4 { // the one shard's eight
			want = append(want, minute*100+n)
		}
	}
	for _, minute := range []uint64{5, 6} {
		for _, n := range []uint64{21, 22, 24, 25, 26, 28, 29, 30} { // of three shards' 24
			want = append(want, minute*100+n)
		}
	}
	r, err := NewReader(w, w.Size())
	if err != nil {
		t.Fatal(err)
	}
	recs, err := r.Kept()
	var got []uint64
	for i := range recs {
		got = append(got, recs[i].Call)
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("kept\n got %v\nwant %v\n%v", got, want, err)
	}
}
