package segment

import (
	"bytes"
	"testing"
	"unsafe"
)

// A Reader neither panics nor reads outside of the file, nor more than its bounds,
// whatever is in it. The input replaces the header and what begins at each table.
func FuzzReader(f *testing.F) {
	v1 := golden(f, "v1.seg.gz")
	v2, _ := make2(f, false)
	next, _ := later(f)
	used := int(unsafe.Sizeof(Header{}))
	for _, whole := range [][]byte{v1, v2, next} {
		h := (*Header)(unsafe.Pointer(&whole[0]))
		old := h.Version == 1
		f.Add(old, whole[:used], []byte{})
		f.Add(old, whole[:used], bytes.Repeat([]byte{0xff}, 256))
		f.Add(old, whole[:used], whole[h.SlotsOff:][:1024])
		f.Add(old, whole[:used], whole[h.ShardsOff+uint64(h.RingOff):][:RecordSize])
		f.Add(old, whole[:used], whole[h.ShardsOff+uint64(h.SlowOff):][:SlowSetSize])
		f.Add(old, whole[:100], []byte{1, 2, 3})
	}
	f.Fuzz(func(t *testing.T, old bool, head, body []byte) {
		whole, version := v2, uint32(Version)
		if old {
			whole, version = v1, 1
		}
		file := bytes.Clone(whole)
		copy(file, head)
		h := (*Header)(unsafe.Pointer(&file[0]))
		h.Magic, h.Version, h.Size, h.FileSize = Magic, version, HeaderSize, uint64(len(file))
		tables := []uint64{uint64(h.MethodsOff), uint64(h.ConnsOff), uint64(h.SlotsOff), uint64(h.RuntimeOff)}
		for _, part := range []uint32{0, h.RingOff, h.FailedOff, h.SlowOff, h.HistOff} {
			tables = append(tables, h.ShardsOff+uint64(part))
		}
		for i, off := range tables {
			if i >= 4 && off == h.ShardsOff+uint64(h.RingOff) && len(body) > 0 && body[0]&1 == 0 {
				continue // the records stay
			}
			if off >= HeaderSize && off < uint64(len(file)) {
				copy(file[off:], body)
			}
		}
		m := &meter{t: t, file: file, size: int64(len(file))}
		r, err := NewReader(m, m.size)
		if err != nil {
			return
		}
		n := takeAll(r)
		if m.read > readFactor*m.size+readExtra || n.items > len(file)/8 {
			t.Fatalf("%d bytes read and %d things handed out of a file of %d", m.read, n.items, len(file))
		}
	})
}

// What a server says of a call comes back as it was said, to a step; and whatever a
// record holds, it is within the bounds of a Timing.
func FuzzTiming(f *testing.F) {
	f.Add(uint64(1), int64(0), int64(16), int64(1<<62), int64(-1), uint8(0))
	f.Add(^uint64(0), int64(31), int64(1<<36-1), int64(1<<36), int64(-1<<63), uint8(3))
	const longest = (1<<32 - 1) * TimingUnit
	f.Fuzz(func(t *testing.T, call uint64, queue, decode, handler, encode int64, flags uint8) {
		said := Timing{call, queue, decode, handler, encode}
		var r Record
		r.SetServerTiming(said)
		got, ok := r.ServerTiming()
		if !ok || got.Call != call {
			t.Fatalf("%+v became %+v, %v", said, got, ok)
		}
		for i, pair := range [][2]int64{{queue, got.Queue}, {decode, got.Decode}, {handler, got.Handler}, {encode, got.Encode}} {
			if want := min(max(pair[0], 0), longest); pair[1] > want || want-pair[1] >= TimingUnit {
				t.Fatalf("time %d: %d became %d", i, pair[0], pair[1])
			}
		}
		again := Record{}
		again.SetServerTiming(got)
		if again != r {
			t.Fatalf("%+v became %+v", r, again)
		}
		wild := Record{Flags: flags, Release: queue, Offset: uint64(handler), Queue: uint32(decode), Worker: uint32(encode)}
		if got, ok = wild.ServerTiming(); ok != (flags&FlagServerTiming != 0) || got.Total() < 0 || got.Total() > 4*longest {
			t.Fatalf("%+v tells %+v, %v", wild, got, ok)
		}
	})
}
