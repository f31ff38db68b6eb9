package segment

import (
	"fmt"
	"unsafe"
)

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

// known says whether the record's outcome and side are.
func (r *Reader) known(rec *Record) bool {
	return rec.Outcome < Outcomes && r.sideOf(rec.Method) < Sides
}

// Records appends the calls that have finished since the last time, in the order of
// each shard, up to those that had when it began: it ends however fast a writer is.
// Those overwritten meanwhile, those damaged and those not understood are counted.
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
	// Methods are entered before their records.
	if err := readInto(r.src, 0, &r.now); err != nil {
		return out, err
	}
	if err := r.learn(r.now.MethodCount); err != nil {
		return out, err
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
			case !r.known(rec):
				r.Unknown++
			default:
				out = append(out, *rec)
			}
		}
		at += uint64(len(part))
		r.last[shard] = at
	}
	return out, nil
}

// What is beyond is no time of a call: 36 years since boot, 13 days in one call.
// Sums of what is within stay within 64 bits.
const (
	maxStamp = 1 << 60
	maxCall  = 1 << 50
)

// sane refuses a record whose fields contradict each other.
func (r *Reader) sane(rec *Record) bool {
	if rec.Method >= r.h.MethodCap || rec.BatchPos > rec.BatchSize {
		return false
	}
	first, last := int64(0), int64(0)
	for _, t := range rec.Stamps {
		if t == 0 {
			continue
		}
		if t < last || t < 0 || t > maxStamp {
			return false
		}
		if last == 0 {
			first = t
		}
		last = t
	}
	return last > 0 && last-first <= maxCall
}
