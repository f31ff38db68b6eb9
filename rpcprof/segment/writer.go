package segment

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Options size a segment. Zero fields take the defaults.
type Options struct {
	Service   string
	Shards    int // Ps that write at once; one more is added for those beyond
	Methods   int // default 256
	Conns     int // default 4096
	CallSlots int // calls in flight that are visible, default 4096
	RoleSlots int // readers, writers and workers, default 4096
	Ring      int // finished calls kept per shard, a power of two; at most MaxRing in all
}

func (o *Options) setDefaults() {
	def := func(v *int, d, limit int) {
		if *v <= 0 {
			*v = d
		}
		*v = min(*v, limit)
	}
	def(&o.Shards, 1, MaxShards-1)
	def(&o.Methods, 256, MaxMethods)
	def(&o.Conns, 4096, MaxConns-1)
	def(&o.CallSlots, 4096, MaxSlots/2)
	def(&o.RoleSlots, 4096, MaxSlots/2)
	if o.Ring <= 0 {
		// A shard's ring stays within a second-level cache, so that recording does
		// not push the service's data out of it; an attached reader empties it every
		// 40 ms, so it holds 100,000 calls a second of each P.
		o.Ring = max(1024, min(4096, 40960/o.Shards))
	}
	o.Ring = 1 << bits.Len(uint(min(o.Ring, MaxRing)-1))
	for o.Ring*(o.Shards+1) > MaxRing {
		o.Ring /= 2
	}
	// What is over the largest file goes: finished calls, then methods.
	for o.Ring > 1024 && o.size() > MaxFileSize {
		o.Ring /= 2
	}
	for o.Methods > 1 && o.size() > MaxFileSize {
		o.Methods /= 2
	}
}

// failed is how many of the calls that did not end well a shard keeps.
func (o *Options) failed() int { return max(o.Ring/4, min(o.Ring, 256)) }

// enter adds a part of the file to the directory.
func (h *Header) enter(name string, off, size uint64) {
	s := &h.Sections[h.SectionCount]
	copy(s.Name[:], name)
	s.Off, s.Size = off, size
	h.SectionCount++
}

// size is no less than what the file takes.
func (o *Options) size() uint64 {
	slots := o.CallSlots + o.RoleSlots
	fixed := HeaderSize + o.Methods*MethodSize + o.Conns*ConnSize + slots*SlotSize + 2*slots*BucketSize + RuntimeKept*RuntimeSize + 8*4096
	shard := ShardHeadSize + (o.Ring+o.failed())*RecordSize + o.Methods*(HistsPerMethod*HistogramSize+SlowMinutes*SlowSetSize) + 4*4096
	return uint64(fixed) + uint64(o.Shards+1)*uint64(shard)
}

// Writer is the service's side of a segment. Its tables point into the mapping;
// who may write what is said at each.
type Writer struct {
	Header  *Header
	Methods []Method // append under the writer's lock
	Conns   []Conn
	Slots   []Slot
	Index   []Bucket
	Runtime []RuntimeSample // of the one goroutine that takes them
	Shards  []Shard         // the last one is shared by all Ps beyond the others

	IndexBits uint32

	mu    sync.Mutex
	mem   memory
	conns []uint32 // free connection entries, a ring
	first int      // of conns
	free  int      // how many
	gen   []uint16

	closed, unmapped bool
}

// Shard is written by one P at a time.
type Shard struct {
	Head   *ShardHead
	Ring   []Record
	Failed []Record // a ring of its own: the calls that did not end well
	slow   []SlowSet
	hists  []Histogram
}

// Slow gives the place for a method's slowest calls of a minute.
func (s *Shard) Slow(method uint32, minute int64) *SlowSet {
	return &s.slow[int(method)*SlowMinutes+int(uint64(minute)%SlowMinutes)]
}

// Hists gives the histograms of one method.
func (s *Shard) Hists(method uint32) *[HistsPerMethod]Histogram {
	return (*[HistsPerMethod]Histogram)(unsafe.Pointer(&s.hists[int(method)*HistsPerMethod]))
}

// ErrHeap is wrapped by NewWriter's error when the segment lives in ordinary
// memory because no memfd could be made: recording works, attaching does not.
var ErrHeap = errors.New("segment not shared")

var seq atomic.Uint32

// NewWriter makes a segment. It always returns a usable Writer; the error says
// why it is not shared.
func NewWriter(o Options) (*Writer, error) { return newWriter(o, allocate) }

func newWriter(o Options, allocate func(size int) (memory, error)) (*Writer, error) {
	o.setDefaults()
	if len(o.Service) > 63 {
		o.Service = o.Service[:63]
	}
	var h Header
	h.Magic, h.Version, h.Revision, h.Size = Magic, Version, Revision, HeaderSize
	h.Clock, h.Seq = ClockMonotonic, seq.Add(1)
	off := uint64(HeaderSize)
	place := func(name string, size int) uint32 {
		at := off
		h.enter(name, off, uint64(size))
		off = (off + uint64(size) + 4095) &^ 4095
		return uint32(at)
	}
	h.MethodsOff, h.MethodCap = place("methods", o.Methods*MethodSize), uint32(o.Methods)
	h.ConnsOff, h.ConnCap = place("connections", o.Conns*ConnSize), uint32(o.Conns)
	slots := o.CallSlots + o.RoleSlots
	h.SlotsOff, h.SlotCap, h.CallSlots = place("slots", slots*SlotSize), uint32(slots), uint32(o.CallSlots)
	// At least as many entries as slots, for most sizes twice as many.
	h.IndexBits = uint32(bits.Len(uint(max(slots/BucketEntries, 1)-1))) + 1
	h.IndexOff = place("index", BucketSize<<h.IndexBits)
	h.RuntimeOff, h.RuntimeCap = place("runtime", RuntimeKept*RuntimeSize), RuntimeKept
	page := func(n uint32) uint32 { return (n + 4095) &^ 4095 }
	h.RingCap, h.RingOff = uint32(o.Ring), ShardHeadSize
	h.FailedCap, h.FailedOff = uint32(o.failed()), page(h.RingOff+uint32(o.Ring*RecordSize))
	h.SlowOff = page(h.FailedOff + h.FailedCap*RecordSize)
	h.HistOff = page(h.SlowOff + uint32(o.Methods*SlowMinutes*SlowSetSize))
	h.HistsPerMethod = uint32(HistsPerMethod)
	h.ShardSize = uint64(h.HistOff) + uint64(o.Methods*HistsPerMethod*HistogramSize)
	h.ShardsOff, h.ShardCap = off, uint32(o.Shards+1)
	h.enter("shards", off, h.ShardSize*uint64(h.ShardCap))
	h.FileSize = off + h.ShardSize*uint64(h.ShardCap)
	if h.FileSize > MaxFileSize {
		return nil, fmt.Errorf("segment of %d bytes is over the limit of %d", h.FileSize, uint64(MaxFileSize))
	}
	copy(h.Service[:], o.Service)

	m, err := allocate(int(h.FileSize))
	w := &Writer{mem: m, IndexBits: h.IndexBits}
	h.Base = uint64(uintptr(unsafe.Pointer(&m.mem[0])))
	w.Methods = table[Method](m.mem, uint64(h.MethodsOff), o.Methods)
	w.Conns = table[Conn](m.mem, uint64(h.ConnsOff), o.Conns)
	w.Slots = table[Slot](m.mem, uint64(h.SlotsOff), slots)
	w.Index = table[Bucket](m.mem, uint64(h.IndexOff), 1<<h.IndexBits)
	w.Runtime = table[RuntimeSample](m.mem, uint64(h.RuntimeOff), RuntimeKept)
	for i := range int(h.ShardCap) {
		base := h.ShardsOff + uint64(i)*h.ShardSize
		w.Shards = append(w.Shards, Shard{
			Head:   (*ShardHead)(unsafe.Pointer(&m.mem[base])),
			Ring:   table[Record](m.mem, base+uint64(h.RingOff), o.Ring),
			Failed: table[Record](m.mem, base+uint64(h.FailedOff), int(h.FailedCap)),
			slow:   table[SlowSet](m.mem, base+uint64(h.SlowOff), o.Methods*SlowMinutes),
			hists:  table[Histogram](m.mem, base+uint64(h.HistOff), o.Methods*HistsPerMethod),
		})
	}
	w.gen = make([]uint16, o.Conns)
	for i := range o.Conns {
		w.conns = append(w.conns, uint32(i))
	}
	w.free = o.Conns
	w.populate()
	w.Header = (*Header)(unsafe.Pointer(&m.mem[0]))
	magic := h.Magic
	h.Magic = 0
	*w.Header = h
	atomic.StoreUint64(&w.Header.Magic, magic) // a reader that sees the magic sees the rest
	return w, err
}

// populate touches what a BPF program reads, which cannot fault pages in.
func (w *Writer) populate() {
	for i := range w.Slots {
		atomic.StoreUint64(&w.Slots[i].Call, 0)
	}
	for i := range w.Index {
		atomic.StoreUint64(&w.Index[i][0].G, 0)
	}
}

func table[T any](mem []byte, off uint64, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(&mem[off])), n)
}

// AddMethod returns the id of a method, new or known, and false when the table is full.
// A name longer than the entry is cut and ends in "~".
func (w *Writer) AddMethod(name string, side Side) (uint32, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := Method{Side: side}
	m.Len = uint32(copy(m.Name[:], name))
	if len(name) > len(m.Name) {
		m.Name[len(m.Name)-1] = '~'
	}
	n := w.Header.MethodCount
	for i := range n {
		if w.Methods[i] == m {
			return i, true
		}
	}
	if int(n) == len(w.Methods) {
		atomic.AddUint64(&w.Header.MethodsRefused, 1)
		return 0, false
	}
	w.Methods[n] = m
	atomic.StoreUint32(&w.Header.MethodCount, n+1)
	return n, true
}

// OpenConn enters a connection and returns its id, 0 when the table is full.
func (w *Writer) OpenConn(c Conn) uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.free == 0 {
		return 0
	}
	i := w.conns[w.first]
	w.first, w.free = (w.first+1)%len(w.conns), w.free-1
	w.gen[i]++
	if w.gen[i] == 0 {
		w.gen[i] = 1
	}
	id := uint32(w.gen[i])<<16 | i
	e := &w.Conns[i]
	atomic.SwapUint32(&e.ID, 0) // no reader takes it for a connection meanwhile; what follows stays behind
	c.ID, c.Open = 0, 1
	*e = c
	atomic.StoreUint32(&e.ID, id)
	if i >= w.Header.ConnHigh {
		atomic.StoreUint32(&w.Header.ConnHigh, i+1)
	}
	return id
}

// SetConnRole names the slot of a connection's reader or writer.
func (w *Writer) SetConnRole(id uint32, kind Kind, slot uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := int(id & 0xffff)
	if id == 0 || i >= len(w.Conns) || w.Conns[i].ID != id {
		return
	}
	e := &w.Conns[i]
	switch kind {
	case KindReader:
		atomic.StoreUint32(&e.Reader, slot)
	case KindWriter:
		atomic.StoreUint32(&e.Writer, slot)
	}
}

// CloseConn marks a connection closed; its entry is reused later under another id.
func (w *Writer) CloseConn(id uint32) {
	if id == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	i := id & 0xffff
	if int(i) >= len(w.Conns) || w.Conns[i].ID != id || w.Conns[i].Open == 0 {
		return
	}
	atomic.StoreUint32(&w.Conns[i].Open, 0)
	// Reused first in, first out, so that a reader still finds the closed one for a while.
	w.conns[(w.first+w.free)%len(w.conns)] = i
	w.free++
}

// Degrade adds a reason to the header.
func (w *Writer) Degrade(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	have := cstring(w.Header.Degraded[:])
	if have != "" {
		why = have + "; " + why
	}
	copy(w.Header.Degraded[:len(w.Header.Degraded)-1], why)
}

// Close marks the segment closed and takes it out of /proc/PID/fd. The mapping
// stays until Unmap, for those who still write to it.
func (w *Writer) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		atomic.StoreUint32(&w.Header.Flags, w.Header.Flags|FlagClosed)
		w.mem.closeFile()
	}
}

// Unmap closes the segment and gives its memory back. Nothing may use it any more.
func (w *Writer) Unmap() {
	w.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.unmapped {
		w.unmapped = true
		w.mem.unmap()
	}
}
