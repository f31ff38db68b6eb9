package segment

import (
	"bytes"
	"fmt"
	"unsafe"
)

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
	// An entry is reused under another id: what is whole has the same before and after.
	again, err := readTable[Conn](r.src, uint64(r.h.ConnsOff), len(all))
	if err != nil {
		return nil, err
	}
	out := all[:0]
	for i, c := range all {
		if c.ID&0xffff == uint32(i) && c.ID != 0 && c.ID == again[i].ID {
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
// contradicts itself, or is of a kind or side not known, is left out.
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
	if err := r.learn(h.MethodCount); err != nil {
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
			case call && (s.Call == 0 || s.Method >= r.h.MethodCap || r.sideOf(s.Method) >= Sides):
			default:
				out = append(out, SlotState{index, s})
			}
		}
	}
	return out, nil
}

// learn reads the sides of the methods that were added since; an entry of the table
// never changes.
func (r *Reader) learn(count uint32) error {
	known := uint32(len(r.side))
	count = min(count, r.h.MethodCap)
	if count <= known {
		return nil
	}
	ms, err := readTable[Method](r.src, uint64(r.h.MethodsOff)+uint64(known)*MethodSize, int(count-known))
	if err != nil {
		return err
	}
	for i := range ms {
		r.side = append(r.side, ms[i].Side)
	}
	return nil
}

// sideOf gives a method's side; one that is not in the table counts as served.
func (r *Reader) sideOf(method uint32) Side {
	if int(method) < len(r.side) {
		return r.side[method]
	}
	return Server
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
