package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"unicode"
	"unicode/utf8"
	"unsafe"
)

// meter is a file that counts what is read of it and fails the test when that is
// outside of it.
type meter struct {
	t           testing.TB
	file        []byte
	size        int64
	reads, read int64
	fails       int64                     // from this read on, 0: never
	live        func(off int64, b []byte) // changes what was read
}

func (m *meter) ReadAt(p []byte, off int64) (int, error) {
	m.reads++
	m.read += int64(len(p))
	if off < 0 || off+int64(len(p)) > m.size {
		m.t.Errorf("read of %d bytes at %d of %d", len(p), off, m.size)
		return 0, io.EOF
	}
	if m.fails > 0 && m.reads >= m.fails {
		return copy(p[:len(p)/2], "gone"), io.EOF
	}
	clear(p)
	if off < int64(len(m.file)) {
		copy(p, m.file[off:])
	}
	if m.live != nil {
		m.live(off, p)
	}
	return len(p), nil
}

// taken is what a reader handed out.
type taken struct {
	items int
	errs  []error
	text  []string
}

// takeAll uses every way of reading that there is.
func takeAll(r *Reader) (n taken) {
	note := func(k int, err error) {
		n.items += k
		if err != nil {
			n.errs = append(n.errs, err)
		}
	}
	h := r.Header()
	n.text = append(n.text, h.ServiceString(), h.DegradedString(), h.GoVersionString())
	ms, err := r.Methods()
	note(len(ms), err)
	for i := range ms {
		n.text = append(n.text, ms[i].NameString(), ms[i].Side.String())
	}
	cs, err := r.Conns()
	note(len(cs), err)
	for i := range cs {
		n.text = append(n.text, cs[i].LocalString(), cs[i].RemoteString())
	}
	ss, err := r.Slots()
	note(len(ss), err)
	for i := range ss {
		_ = ss[i].Since()
		n.text = append(n.text, StageName(sideIn(ms, ss[i].Method), ss[i].Stage), ss[i].Kind.String())
	}
	for range 2 {
		recs, err := r.Records(nil)
		note(len(recs), err)
		for i := range recs {
			_, _ = recs[i].ServerTiming()
			n.text = append(n.text[:min(len(n.text), 4096)], recs[i].Outcome.String())
		}
	}
	kept, err := r.Kept()
	note(len(kept), err)
	rs, err := r.Runtime()
	note(len(rs), err)
	for i := range ms {
		_, err := r.Histograms(uint32(i))
		note(HistsPerMethod, err)
	}
	_, err = r.Histograms(math.MaxUint32)
	note(0, err)
	_, _, _, _, err = r.Counts()
	note(0, err)
	note(0, r.Skip())
	n.text = append(n.text, r.Skipped()...)
	return n
}

func sideIn(ms []Method, id uint32) Side {
	if int(id) < len(ms) {
		return ms[id].Side
	}
	return Side(id)
}

// allocated is how many bytes f allocates, all told.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// bounds of reading the whole of a segment once with takeAll: eight times its size
// are read, at most, and one megabyte more; and as much is allocated.
const (
	readFactor = 8
	readExtra  = 1 << 20
)

// takeBounded opens and reads a file, within the bounds or with an error.
func takeBounded(t testing.TB, what string, m *meter) {
	t.Helper()
	var n taken
	var opened bool
	got := allocated(func() {
		r, err := NewReader(m, m.size)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNotSegment) && !errors.Is(err, ErrVersion) {
				t.Errorf("%s: refused with %v", what, err)
			}
			return
		}
		opened = true
		n = takeAll(r)
	})
	limit := readFactor*m.size + readExtra
	if m.read > limit || int64(got) > limit {
		t.Errorf("%s: %d bytes read and %d allocated for a file of %d", what, m.read, got, m.size)
	}
	if !opened && m.read > HeaderSize {
		t.Errorf("%s: %d bytes were read before it was refused", what, m.read)
	}
	for _, s := range n.text {
		for _, c := range s {
			if !utf8.ValidString(s) || !unicode.IsPrint(c) {
				t.Errorf("%s: text %q", what, s)
				break
			}
		}
	}
}

// words are header words that lead somewhere: all but texts and Go's offsets.
func words() (at []int) {
	for i := 8; i < 160; i += 4 {
		at = append(at, i)
	}
	for i := 512; i < 544; i += 4 {
		at = append(at, i)
	}
	return at
}

var extremes = []uint32{
	0, 1, 2, 7, 8, 63, 64, 128, 4095, 4096, 1 << 16, 1<<20 - 1, 1 << 20, 1<<31 - 1, 1 << 31, math.MaxUint32, math.MaxUint32 &^ 63, math.MaxUint32 &^ 4095,
}

// Any word of the header may be anything, alone and beside another: sizes that
// overflow, tables that overlap or lie outside, a million methods or shards.
func TestHostileHeaders(t *testing.T) {
	v2, _ := make2(t, false)
	for version, whole := range map[string][]byte{"v1": golden(t, "v1.seg.gz"), "v2": v2} {
		edit := func(what string, at []int, v []uint32) {
			t.Helper()
			head := bytes.Clone(whole)
			for i := range at {
				binary.LittleEndian.PutUint32(head[at[i]:], v[i])
			}
			takeBounded(t, version+what, &meter{t: t, file: head, size: int64(len(head))})
		}
		for _, at := range words() {
			for _, v := range extremes {
				edit("", []int{at}, []uint32{v})
			}
		}
		rnd := rand.New(rand.NewPCG(5, 6))
		all := words()
		for range 500 {
			at := []int{all[rnd.IntN(len(all))], all[rnd.IntN(len(all))], all[rnd.IntN(len(all))]}
			edit("", at, []uint32{extremes[rnd.IntN(len(extremes))], extremes[rnd.IntN(len(extremes))], rnd.Uint32() >> rnd.IntN(32)})
		}
	}
}

// Every table may be the same bytes, and those may be anything.
func TestHostileOverlap(t *testing.T) {
	whole, _ := make2(t, false)
	for _, fill := range []byte{0, 1, 2, 0x7f, 0xff} {
		file := bytes.Clone(whole)
		h := (*Header)(unsafe.Pointer(&file[0]))
		for i := HeaderSize; i < len(file); i++ {
			file[i] = fill
		}
		h.MethodsOff, h.ConnsOff, h.SlotsOff, h.IndexOff, h.RuntimeOff, h.ShardsOff = 4096, 4096, 4096, 4096, 4096, 4096
		h.RingOff, h.FailedOff, h.SlowOff, h.HistOff = 128, 128, 128, 128
		h.MethodCount, h.ConnHigh, h.CallHigh, h.RoleHigh, h.SectionCount = math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32, MaxSections
		takeBounded(t, "overlap", &meter{t: t, file: file, size: int64(len(file))})
	}
}

// A file that ends, or whose reads begin to fail, at any moment: an error each time,
// never a part taken for the whole.
func TestHostileShrinks(t *testing.T) {
	whole, _ := make2(t, false)
	m := &meter{t: t, file: whole, size: int64(len(whole))}
	r, err := NewReader(m, m.size)
	if err != nil {
		t.Fatal(err)
	}
	usual := len(takeAll(r).errs) // one method that is not there
	for last := m.reads; m.fails < last; {
		m = &meter{t: t, file: whole, size: int64(len(whole)), fails: m.fails + 1}
		r, err := NewReader(m, m.size)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("read %d fails: %v", m.fails, err)
			}
			continue
		}
		n := takeAll(r)
		if len(n.errs) <= usual && m.reads >= m.fails {
			t.Errorf("read %d fails and nobody is told", m.fails)
		}
		for _, err := range n.errs {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("read %d fails: %v", m.fails, err)
			}
		}
	}
}
