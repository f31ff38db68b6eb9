package segment

import (
	"cmp"
	"slices"
)

// maxKept bounds what Kept reads, in bytes.
const maxKept = 64 << 20

// Kept reads the calls that are kept beyond the ring: the slowest of each method
// and minute, and the last of those that did not end well. Each call is there
// once, by when it began. A call that is written meanwhile is left out.
func (r *Reader) Kept() ([]Record, error) {
	var h Header
	if err := readInto(r.src, 0, &h); err != nil {
		return nil, err
	}
	var out []Record
	budget := maxKept
	methods := uint64(min(h.MethodCount, r.h.MethodCap))
	var set SlowSet
	for i := range r.last {
		if r.h.SlowOff == 0 {
			break
		}
		for k := range methods * SlowMinutes {
			if budget -= SlowSetSize; budget < 0 {
				break
			}
			off := r.shard(i) + uint64(r.h.SlowOff) + k*SlowSetSize
			if err := readInto(r.src, off, &set.Minute); err != nil {
				return out, err
			}
			if set.Minute == 0 {
				continue
			}
			if err := readInto(r.src, off, &set); err != nil {
				return out, err
			}
			for n := range set.Records {
				at := off + 64 + uint64(n)*RecordSize
				if set.Records[n].Seq != 0 && r.steady(at, &set.Records[n]) {
					out = append(out, set.Records[n])
				}
			}
		}
	}
	for i := range r.last {
		if r.h.FailedCap == 0 {
			break
		}
		var head ShardHead
		if err := readInto(r.src, r.shard(i), &head); err != nil {
			return out, err
		}
		n := int(min(head.Failed, uint64(r.h.FailedCap)))
		if budget -= n * RecordSize; budget < 0 {
			break
		}
		ring, err := readTable[Record](r.src, r.shard(i)+uint64(r.h.FailedOff), n)
		if err != nil {
			return out, err
		}
		for k := range ring {
			at := r.shard(i) + uint64(r.h.FailedOff) + uint64(k)*RecordSize
			if ring[k].Seq != 0 && r.steady(at, &ring[k]) {
				out = append(out, ring[k])
			}
		}
	}
	slices.SortFunc(out, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Stamps[0], b.Stamps[0]), cmp.Compare(a.Call, b.Call))
	})
	return slices.CompactFunc(out, func(a, b Record) bool { return a.Call == b.Call }), nil
}

// steady says whether a record that was copied is whole: its number has not
// changed meanwhile, and its fields agree.
func (r *Reader) steady(at uint64, rec *Record) bool {
	var seq uint64
	return readInto(r.src, at, &seq) == nil && seq == rec.Seq && r.sane(rec)
}

// Runtime reads the Go runtime's readings, oldest first.
func (r *Reader) Runtime() ([]RuntimeSample, error) {
	all, err := readTable[RuntimeSample](r.src, uint64(r.h.RuntimeOff), int(r.h.RuntimeCap))
	if err != nil {
		return nil, err
	}
	out := all[:0]
	for i, s := range all {
		var seq uint64
		at := uint64(r.h.RuntimeOff) + uint64(i)*RuntimeSize
		if s.Seq != 0 && s.AtNS > 0 && readInto(r.src, at, &seq) == nil && seq == s.Seq {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b RuntimeSample) int { return cmp.Compare(a.Seq, b.Seq) })
	return out, nil
}

// ReadAt reads the segment within the process that writes it.
func (w *Writer) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 || off >= int64(len(w.mem.mem)) {
		return 0, errOutside
	}
	n := copy(b, w.mem.mem[off:])
	if n < len(b) {
		return n, errOutside
	}
	return n, nil
}

// Size is the segment's size in bytes.
func (w *Writer) Size() int64 { return int64(len(w.mem.mem)) }
