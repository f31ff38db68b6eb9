package segment

import (
	"cmp"
	"slices"
)

// Kept reads the calls that are kept beyond the ring: the slowest of each method
// and minute, over all shards, and the last of those that did not end well. Each
// call is there once, by when it began. A call that is written meanwhile, and one
// that Records would not hand out, is left out.
func (r *Reader) Kept() ([]Record, error) {
	if err := readInto(r.src, 0, &r.now); err != nil {
		return nil, err
	}
	count := min(r.now.MethodCount, r.h.MethodCap)
	if err := r.learn(count); err != nil {
		return nil, err
	}
	out, err := r.slow(nil, count)
	if err != nil {
		return out, err
	}
	for i := range r.last {
		if out, err = r.failed(i, out); err != nil {
			return out, err
		}
	}
	slices.SortFunc(out, func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Stamps[0], b.Stamps[0]), cmp.Compare(a.Call, b.Call))
	})
	return slices.CompactFunc(out, func(a, b Record) bool { return a.Call == b.Call }), nil
}

// slowCall is a kept call and the minute in whose set it is.
type slowCall struct {
	minute, wall int64
	Record
}

// slow reads the slowest calls of all methods. A shard that a method has not run on
// for long still has its old minutes; the latest minutes are given.
func (r *Reader) slow(out []Record, methods uint32) ([]Record, error) {
	if r.h.SlowOff == 0 {
		return out, nil
	}
	var calls []slowCall
	for m := range uint64(methods) {
		calls = calls[:0]
		for i := range r.last {
			for k := range uint64(SlowMinutes) {
				var err error
				off := r.shard(i) + uint64(r.h.SlowOff) + (m*SlowMinutes+k)*SlowSetSize
				if calls, err = r.slowSet(off, uint32(m), calls); err != nil {
					return out, err
				}
			}
		}
		slices.SortFunc(calls, func(a, b slowCall) int {
			return cmp.Or(cmp.Compare(b.minute, a.minute), cmp.Compare(b.wall, a.wall))
		})
		minutes, n := 0, 0
		for i := range calls {
			if i == 0 || calls[i].minute != calls[i-1].minute {
				minutes, n = minutes+1, 0
			}
			if n++; n <= SlowKept && minutes <= SlowMinutes {
				out = append(out, calls[i].Record)
			}
		}
	}
	return out, nil
}

// slowSet reads one set.
func (r *Reader) slowSet(off uint64, method uint32, calls []slowCall) ([]slowCall, error) {
	var set SlowSet
	if err := readInto(r.src, off, &set.Minute); err != nil || set.Minute == 0 {
		return calls, err
	}
	if err := readInto(r.src, off, &set); err != nil {
		return calls, err
	}
	for n := range set.Records {
		rec := &set.Records[n]
		if rec.Method == method && r.steady(off+64+uint64(n)*RecordSize, rec) {
			calls = append(calls, slowCall{set.Minute, rec.wall(), *rec})
		}
	}
	return calls, nil
}

// wall is the time from the record's first stamp to its last.
func (r *Record) wall() int64 {
	for i := Stamps - 1; i > 0; i-- {
		if t := r.Stamps[i]; t != 0 {
			return t - r.Stamps[0]
		}
	}
	return 0
}

// failed reads a shard's ring of calls that did not end well.
func (r *Reader) failed(shard int, out []Record) ([]Record, error) {
	if r.h.FailedCap == 0 {
		return out, nil
	}
	var head ShardHead
	if err := readInto(r.src, r.shard(shard), &head); err != nil {
		return out, err
	}
	n := min(head.Failed, uint64(r.h.FailedCap))
	for at := uint64(0); at < n; {
		off := r.shard(shard) + uint64(r.h.FailedOff) + at*RecordSize
		part := r.recs[:min(uint64(len(r.recs)), n-at)]
		if err := readSlice(r.src, off, part); err != nil {
			return out, err
		}
		for k := range part {
			if r.steady(off+uint64(k)*RecordSize, &part[k]) {
				out = append(out, part[k])
			}
		}
		at += uint64(len(part))
	}
	return out, nil
}

// steady says whether a record that was copied is there and whole: its number has
// not changed meanwhile, its fields agree and are understood.
func (r *Reader) steady(at uint64, rec *Record) bool {
	if rec.Seq == 0 || !r.sane(rec) || !r.known(rec) {
		return false
	}
	var seq uint64
	return readInto(r.src, at, &seq) == nil && seq == rec.Seq
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
