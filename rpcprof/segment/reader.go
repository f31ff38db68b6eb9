package segment

import (
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
	side []Side    // of the methods that are known
	// Overwritten counts finished calls that were gone before they were read.
	Overwritten uint64
	// Torn counts records that were damaged when they were read.
	Torn uint64
	// Unknown counts records with an outcome or of a side that this reader does not
	// know, as a later version of the library may write. What they mean is not
	// guessed: they are left out.
	Unknown uint64
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
	if !tablesFit(h, uint64(size), hists, r.v1) {
		return nil, fmt.Errorf("%w: a table lies outside the file or is over its limit", ErrCorrupt)
	}
	for i := range h.Sections[:h.SectionCount] {
		sanitize(h.Sections[i].Name[:])
	}
	for _, text := range [][]byte{h.GoVersion[:], h.Service[:], h.Degraded[:]} {
		sanitize(text)
	}
	r.last = make([]uint64, h.ShardCap)
	r.recs = make([]Record, min(h.RingCap, maxRun))
	return r, nil
}

// tablesFit says whether every table lies within the file and its limit. Of a
// version 1 header it clears what that did not have.
func tablesFit(h *Header, size, hists uint64, v1 bool) bool {
	if v1 {
		h.Revision, h.SectionCount, h.SlowOff, h.FailedOff, h.FailedCap, h.RuntimeCap, h.CPUEvery = 0, 0, 0, 0, 0, 0, 0
	}
	// No product overflows: counts are held against their limits first, and a shard
	// is no longer than the file.
	fits := func(off, n, each, limit uint64) bool {
		return n <= limit && off%64 == 0 && off >= HeaderSize && off <= size && n*each <= size-off
	}
	inShard := func(off uint32, bytes uint64) bool {
		return off >= ShardHeadSize && off%8 == 0 && uint64(off)+bytes <= h.ShardSize
	}
	pow2 := func(n uint32) bool { return bits.OnesCount32(n) == 1 }
	methods, shards := uint64(h.MethodCap), uint64(h.ShardCap)
	return fits(uint64(h.MethodsOff), methods, MethodSize, MaxMethods) &&
		fits(uint64(h.ConnsOff), uint64(h.ConnCap), ConnSize, MaxConns) &&
		fits(uint64(h.SlotsOff), uint64(h.SlotCap), SlotSize, 2*MaxSlots) && h.CallSlots <= h.SlotCap &&
		h.IndexBits > 0 && h.IndexBits <= 20 && fits(uint64(h.IndexOff), 1<<h.IndexBits, BucketSize, 1<<20) &&
		shards > 0 && h.ShardSize > 0 && h.ShardSize <= size && h.ShardSize%64 == 0 && fits(h.ShardsOff, shards, h.ShardSize, MaxShards) &&
		pow2(h.RingCap) && uint64(h.RingCap)*shards <= MaxRing && inShard(h.RingOff, uint64(h.RingCap)*RecordSize) &&
		uint64(h.HistsPerMethod) == hists && inShard(h.HistOff, methods*hists*HistogramSize) &&
		h.SectionCount <= MaxSections &&
		(h.SlowOff == 0 || inShard(h.SlowOff, methods*SlowMinutes*SlowSetSize)) &&
		(h.FailedCap == 0 || pow2(h.FailedCap) && uint64(h.FailedCap)*shards <= MaxFailed && inShard(h.FailedOff, uint64(h.FailedCap)*RecordSize)) &&
		(h.RuntimeCap == 0 || fits(uint64(h.RuntimeOff), uint64(h.RuntimeCap), RuntimeSize, RuntimeKept))
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

// sections are those that this reader reads.
var sections = map[string]bool{"methods": true, "connections": true, "slots": true, "index": true, "runtime": true, "shards": true}

// Skipped names what the segment holds that this reader does not know, as one
// written by a later revision of the library may: of sections all, of methods and
// records what was come across so far.
func (r *Reader) Skipped() []string {
	var out []string
	for i := range r.h.Sections[:r.h.SectionCount] {
		if s := &r.h.Sections[i]; !sections[s.NameString()] {
			out = append(out, fmt.Sprintf("section %q of %d bytes", s.NameString(), s.Size))
		}
	}
	unknown := 0
	for _, s := range r.side {
		if s >= Sides {
			unknown++
		}
	}
	if unknown > 0 {
		out = append(out, fmt.Sprintf("%d methods of a side not known", unknown))
	}
	if r.Unknown > 0 {
		out = append(out, fmt.Sprintf("%d records of an outcome or a side not known", r.Unknown))
	}
	return out
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
