package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"unicode"
	"unicode/utf8"
	"unsafe"
)

// Errors a Reader returns; match with errors.Is.
var (
	ErrNotSegment = errors.New("not an rpcprof segment")
	ErrVersion    = errors.New("segment version not known to this reader")
	ErrCorrupt    = errors.New("segment is damaged or hostile")

	errOutside = errors.New("outside the segment")
)

// maxRun is how many records are copied at once.
const maxRun = 512

// Reader reads a segment that another process writes. It copies, then checks;
// what it returns is in bounds whatever the writer does. It is not safe for
// concurrent use.
type Reader struct {
	src  io.ReaderAt
	h    Header // as accepted; sizes and offsets are taken from here only
	last []uint64
	v1   bool
	now  Header    // scratch
	part [256]Slot // scratch
	recs []Record  // scratch
	// Overwritten counts finished calls that were gone before they were read.
	Overwritten uint64
	// Torn counts records that were damaged when they were read.
	Torn uint64
}

// NewReader checks the header of a segment of the given size.
func NewReader(src io.ReaderAt, size int64) (*Reader, error) {
	if size < HeaderSize || size > MaxFileSize {
		return nil, fmt.Errorf("%w: %d bytes", ErrNotSegment, size)
	}
	r := &Reader{src: src}
	if err := readInto(src, 0, &r.h); err != nil {
		return nil, err
	}
	h := &r.h
	if h.Magic != Magic {
		return nil, ErrNotSegment
	}
	hists := uint64(HistsPerMethod)
	switch h.Version {
	case Version:
	case 1:
		r.v1, hists = true, histsPerMethodV1
	default:
		return nil, fmt.Errorf("%w: it has %d, this reads 1 to %d", ErrVersion, h.Version, Version)
	}
	if h.FileSize != uint64(size) || h.Size != HeaderSize {
		return nil, fmt.Errorf("%w: header says %d bytes, the file has %d", ErrCorrupt, h.FileSize, size)
	}
	fits := func(off uint64, n uint64, each uint64, limit uint64) bool {
		return n <= limit && off%64 == 0 && off >= HeaderSize && off <= uint64(size) && n*each <= uint64(size)-off
	}
	ring := uint64(h.RingCap)
	switch {
	case !fits(uint64(h.MethodsOff), uint64(h.MethodCap), MethodSize, MaxMethods),
		!fits(uint64(h.ConnsOff), uint64(h.ConnCap), ConnSize, MaxConns),
		!fits(uint64(h.SlotsOff), uint64(h.SlotCap), SlotSize, 2*MaxSlots),
		h.IndexBits == 0 || h.IndexBits > 20,
		!fits(uint64(h.IndexOff), 1<<h.IndexBits, BucketSize, 1<<20),
		h.CallSlots > h.SlotCap,
		h.ShardCap == 0 || h.ShardSize == 0 || h.ShardSize > uint64(size),
		!fits(h.ShardsOff, uint64(h.ShardCap), h.ShardSize, MaxShards),
		ring == 0 || ring > MaxRing || bits.OnesCount64(ring) != 1,
		uint64(h.RingOff) < ShardHeadSize || h.RingOff%8 != 0 || uint64(h.RingOff)+ring*RecordSize > h.ShardSize,
		uint64(h.HistsPerMethod) != hists || h.HistOff%8 != 0,
		uint64(h.HistOff)+uint64(h.MethodCap)*hists*HistogramSize > h.ShardSize:
		return nil, fmt.Errorf("%w: a table lies outside the file", ErrCorrupt)
	}
	if r.v1 {
		h.Revision, h.SectionCount, h.SlowOff, h.FailedOff, h.FailedCap, h.RuntimeCap, h.CPUEvery = 0, 0, 0, 0, 0, 0, 0
	}
	failed := uint64(h.FailedCap)
	switch {
	case h.SectionCount > MaxSections,
		h.SlowOff%8 != 0 || uint64(h.SlowOff)+uint64(h.MethodCap)*SlowMinutes*SlowSetSize > h.ShardSize && h.SlowOff != 0,
		failed > MaxRing || bits.OnesCount64(failed) > 1,
		h.FailedOff%8 != 0 || uint64(h.FailedOff)+failed*RecordSize > h.ShardSize,
		!fits(uint64(h.RuntimeOff), uint64(h.RuntimeCap), RuntimeSize, RuntimeKept) && h.RuntimeCap != 0:
		return nil, fmt.Errorf("%w: a table lies outside the file", ErrCorrupt)
	}
	for i := range h.Sections[:h.SectionCount] {
		sanitize(h.Sections[i].Name[:])
	}
	for _, text := range [][]byte{h.GoVersion[:], h.Service[:], h.Degraded[:]} {
		sanitize(text)
	}
	r.last = make([]uint64, h.ShardCap)
	r.recs = make([]Record, min(ring, maxRun))
	return r, nil
}

// readInto copies a value of fixed layout from the file.
func readInto[T any](src io.ReaderAt, off uint64, v *T) error {
	b := unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
	return readFull(src, off, b)
}

func readTable[T any](src io.ReaderAt, off uint64, n int) ([]T, error) {
	out := make([]T, n)
	return out, readSlice(src, off, out)
}

func readSlice[T any](src io.ReaderAt, off uint64, out []T) error {
	if len(out) == 0 {
		return nil
	}
	b := unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), uintptr(len(out))*unsafe.Sizeof(out[0]))
	return readFull(src, off, b)
}

func readFull(src io.ReaderAt, off uint64, b []byte) error {
	n, err := src.ReadAt(b, int64(off))
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: read of %d bytes at %d: %w", ErrCorrupt, len(b), off, err)
}

// Header gives the header as it was when the segment was opened.
func (r *Reader) Header() Header { return r.h }

// known are the sections that this reader reads.
var known = map[string]bool{"methods": true, "connections": true, "slots": true, "index": true, "runtime": true, "shards": true}

// Skipped names what the segment holds that this reader does not know, as one
// written by a later version of the library may.
func (r *Reader) Skipped() []string {
	var out []string
	for i := range r.h.Sections[:r.h.SectionCount] {
		if s := &r.h.Sections[i]; !known[s.NameString()] {
			out = append(out, fmt.Sprintf("section %q of %d bytes", s.NameString(), s.Size))
		}
	}
	return out
}

// Counts reads the header's running counters: calls not recorded, calls without
// a slot, goroutines without an index entry.
func (r *Reader) Counts() (lost, noSlot, noIndex uint64, closed bool, err error) {
	var h Header
	if err := readInto(r.src, 0, &h); err != nil {
		return 0, 0, 0, false, err
	}
	return h.LostCalls, h.NoSlot, h.NoIdx, h.Flags&FlagClosed != 0, nil
}

// Methods reads the method table; a method's id is its index.
func (r *Reader) Methods() ([]Method, error) {
	var h Header
	if err := readInto(r.src, 0, &h); err != nil {
		return nil, err
	}
	ms, err := readTable[Method](r.src, uint64(r.h.MethodsOff), int(min(h.MethodCount, r.h.MethodCap)))
	for i := range ms {
		m := &ms[i]
		m.Len = min(m.Len, uint32(len(m.Name)))
		if end := bytes.IndexByte(m.Name[:m.Len], 0); end >= 0 {
			m.Len = uint32(end)
		}
		sanitize(m.Name[:m.Len])
	}
	return ms, err
}

// Conns reads the connections that were ever entered, open or closed.
func (r *Reader) Conns() ([]Conn, error) {
	h := &r.now
	if err := readInto(r.src, 0, h); err != nil {
		return nil, err
	}
	all, err := readTable[Conn](r.src, uint64(r.h.ConnsOff), int(min(h.ConnHigh, r.h.ConnCap)))
	if err != nil {
		return nil, err
	}
	out := all[:0]
	for i, c := range all {
		if c.ID&0xffff == uint32(i) && c.ID != 0 {
			sanitize(c.Local[:])
			sanitize(c.Remote[:])
			out = append(out, c)
		}
	}
	return out, nil
}

// SlotState is a slot in use and its number.
type SlotState struct {
	Index uint32
	Slot
}

// Slots reads the slots in use: the calls in flight and the roles. A slot that
// contradicts itself is left out.
func (r *Reader) Slots() ([]SlotState, error) {
	return r.SlotsInto(nil)
}

// SlotsInto is Slots with the result appended to out, for callers that look often.
// Only the part of the table that was ever used is read.
func (r *Reader) SlotsInto(out []SlotState) ([]SlotState, error) {
	h := &r.now
	if err := readInto(r.src, 0, h); err != nil {
		return out, err
	}
	calls := min(h.CallHigh, r.h.CallSlots)
	roles := max(min(h.RoleHigh, r.h.SlotCap), r.h.CallSlots)
	out, err := r.slotRange(out, 0, calls)
	if err != nil {
		return out, err
	}
	return r.slotRange(out, r.h.CallSlots, roles)
}

func (r *Reader) slotRange(out []SlotState, from, to uint32) ([]SlotState, error) {
	chunk := uint32(len(r.part))
	for at := from; at < to; at += chunk {
		n := min(chunk, to-at)
		b := unsafe.Slice((*byte)(unsafe.Pointer(&r.part)), n*SlotSize)
		if err := readFull(r.src, uint64(r.h.SlotsOff)+uint64(at)*SlotSize, b); err != nil {
			return out, err
		}
		for i := range r.part[:n] {
			s := r.part[i]
			if r.v1 {
				s = (*slotV1)(unsafe.Pointer(&r.part[i])).now()
			}
			index := at + uint32(i)
			call := index < r.h.CallSlots
			switch {
			case s.Kind == KindFree || s.Kind >= Kinds || call != (s.Kind == KindCall) || s.Stage >= Stages:
			case call && (s.Call == 0 || s.Method >= r.h.MethodCap):
			default:
				out = append(out, SlotState{index, s})
			}
		}
	}
	return out, nil
}

// Skip makes the next Records begin with calls that finish from now on.
func (r *Reader) Skip() error {
	for i := range r.last {
		head, err := r.head(i)
		if err != nil {
			return err
		}
		r.last[i] = head
	}
	return nil
}

func (r *Reader) shard(i int) uint64 { return r.h.ShardsOff + uint64(i)*r.h.ShardSize }

func (r *Reader) head(i int) (uint64, error) {
	var h ShardHead
	err := readInto(r.src, r.shard(i), &h)
	return h.Head, err
}

// Records appends the calls that have finished since the last time, in the
// order of each shard. Those overwritten meanwhile and those damaged are counted.
func (r *Reader) Records(out []Record) ([]Record, error) {
	for i := range r.last {
		var err error
		if out, err = r.shardRecords(i, out); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (r *Reader) shardRecords(shard int, out []Record) ([]Record, error) {
	n := uint64(r.h.RingCap)
	head, err := r.head(shard)
	if err != nil {
		return out, err
	}
	from := r.last[shard]
	if head < from { // a writer that goes back is hostile; begin again at its word
		r.last[shard] = head
		return out, fmt.Errorf("%w: shard %d counts backwards", ErrCorrupt, shard)
	}
	if head-from > n {
		r.Overwritten += head - from - n
		from = head - n
	}
	if head == from {
		return out, nil
	}
	base := r.shard(shard) + uint64(r.h.RingOff)
	for at := from; at < head; {
		place := at & (n - 1)
		part := r.recs[:min(uint64(len(r.recs)), n-place, head-at)]
		if err := readSlice(r.src, base+place*RecordSize, part); err != nil {
			return out, err
		}
		if r.v1 {
			for k := range part {
				part[k] = (*recordV1)(unsafe.Pointer(&part[k])).now()
			}
		}
		// Whatever the writer reached while this was copied may be damaged.
		after, err := r.head(shard)
		if err != nil {
			return out, err
		}
		for k := range part {
			rec, number := &part[k], at+uint64(k)
			switch {
			case after >= n && number <= after-n:
				r.Overwritten++
			case rec.Seq != number+1 || !r.sane(rec):
				r.Torn++
			default:
				out = append(out, *rec)
			}
		}
		at += uint64(len(part))
		r.last[shard] = at
	}
	return out, nil
}

// sane refuses a record whose fields contradict each other.
func (r *Reader) sane(rec *Record) bool {
	if rec.Method >= r.h.MethodCap || rec.Outcome >= Outcomes {
		return false
	}
	if rec.BatchPos > rec.BatchSize {
		return false
	}
	last := int64(0)
	for _, t := range rec.Stamps {
		if t == 0 {
			continue
		}
		if t < last || t < 0 {
			return false
		}
		last = t
	}
	return last > 0
}

// Histograms reads and adds up one method's histograms over all shards.
func (r *Reader) Histograms(method uint32) (*[HistsPerMethod]Histogram, error) {
	if method >= r.h.MethodCap {
		return nil, fmt.Errorf("method %d: %w", method, ErrCorrupt)
	}
	n := int(r.h.HistsPerMethod)
	var sum, one [HistsPerMethod]Histogram
	for i := range r.last {
		off := r.shard(i) + uint64(r.h.HistOff) + uint64(method)*uint64(n)*HistogramSize
		if err := readSlice(r.src, off, one[:n]); err != nil {
			return nil, err
		}
		for k := range one[:n] {
			for b, v := range one[k] {
				sum[k][b] += v
			}
		}
	}
	if r.v1 { // the whole came after the five stages
		sum[HistTotal], sum[histsPerMethodV1-1] = sum[histsPerMethodV1-1], Histogram{}
	}
	return &sum, nil
}

// sanitize makes foreign text safe to print: what is not printable becomes "?".
func sanitize(b []byte) {
	for i := 0; i < len(b); {
		if b[i] == 0 {
			i++
			continue
		}
		c, n := utf8.DecodeRune(b[i:])
		if !unicode.IsPrint(c) || c == utf8.RuneError && n == 1 {
			for k := range n {
				b[i+k] = '?'
			}
		}
		i += n
	}
}
