package probes

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/rpcprof/toolkit/probes/bpf"
)

// maxEvents bounds what is kept of one window: 100 bytes each.
const maxEvents = 4 << 20

// flushEvery is how often the ring is emptied. It has room for 80,000 events.
const flushEvery = 40 * time.Millisecond

// kernel is the BPF side: attached programs and the events they gave.
type kernel struct {
	coll   *ebpf.Collection
	links  []link.Link
	reader *ringbuf.Reader
	missed []string // tracepoints this kernel does not have

	services []*service // whose calls it tags, by the number that events bear
	beyond   int        // how many more there are

	mu      sync.Mutex
	events  []bpf.ProgramsEvent
	dropped uint64 // beyond maxEvents
	// pendingKnown: events hold also what had not ended when the programs were detached.
	pendingKnown bool
	done         chan struct{}
	stop         chan struct{}
	began        time.Time
	clocked      chan struct{}
	timed        atomic.Int64 // ns for which the programs' run time was measured
}

// Kinds of events (enum kind in rpcprof.bpf.c).
const (
	kindOffCPU = 1 + iota
	kindHardIRQ
	kindSoftIRQ
	kindDataReady
	kindThreadExit
)

// Flags of off-CPU events (enum flag).
const (
	flagPreempted = 1 << iota
	flagIOWait
)

// Counters (enum counter).
const (
	lostEvents = iota
	lostStacks
	overBudget
	untagged
)

// maxProfilers is how many profilers of one process the programs follow.
const maxProfilers = 4

// attachKernel loads and attaches the programs to a process. Events are tagged with
// the calls of the services.
func attachKernel(pid int, services []*service) (*kernel, error) {
	if runtime.GOARCH != "amd64" {
		return nil, &KernelError{Feature: "support on " + runtime.GOARCH + ": the programs read amd64 registers"}
	}
	spec, err := bpf.LoadPrograms()
	if err != nil {
		return nil, fmt.Errorf("BPF programs of this build are damaged: %w", err)
	}
	k := &kernel{
		done: make(chan struct{}), stop: make(chan struct{}), clocked: make(chan struct{}),
		// Room at once: growing copies. Pages that are not reached take no memory.
		events: make([]bpf.ProgramsEvent, 0, maxEvents/16),
	}
	if err := k.prune(spec); err != nil {
		return nil, err
	}
	set := func(name string, v any) {
		if e := spec.Variables[name].Set(v); e != nil && err == nil {
			err = fmt.Errorf("BPF variable %s: %w", name, e)
		}
	}
	set("target", uint32(pid))
	k.tag(services, set)
	if err != nil {
		return nil, err
	}
	if k.coll, err = ebpf.NewCollection(spec); err != nil {
		k.Close()
		return nil, explain(err)
	}
	for _, name := range attachOrder(k.coll.Programs) {
		l, err := link.AttachTracing(link.TracingOptions{Program: k.coll.Programs[name]})
		if err != nil {
			k.Close()
			return nil, fmt.Errorf("attach %s: %w", name, explain(err))
		}
		k.links = append(k.links, l)
	}
	if k.reader, err = ringbuf.NewReader(k.coll.Maps["events"]); err != nil {
		k.Close()
		return nil, fmt.Errorf("ring buffer: %w", explain(err))
	}
	k.began = time.Now()
	go k.read()
	go k.clock()
	return k, nil
}

// tag tells the programs where the services' calls are to be found.
func (k *kernel) tag(services []*service, set func(string, any)) {
	var index, slots [maxProfilers]uint64
	var bits, slotCap, byThread [maxProfilers]uint32
	for _, s := range services {
		h, n := &s.header, len(k.services)
		switch {
		case !s.tagged():
			continue
		case n == maxProfilers:
			k.beyond++
			continue
		}
		k.services = append(k.services, s)
		index[n], slots[n] = h.Base+uint64(h.IndexOff), h.Base+uint64(h.SlotsOff)
		bits[n], slotCap[n] = h.IndexBits, h.SlotCap
		if s.onThreads() {
			byThread[n] = 1
			set("threads_too", uint32(1))
			continue
		}
		set("goroutines", uint32(1))
		set("tls_off", h.TLSOff)
		set("g_m", h.GM)
		set("g_goid", h.GGoid)
		set("m_curg", h.MCurG)
	}
	set("profilers", uint32(len(k.services)))
	set("index_addr", index)
	set("slots_addr", slots)
	set("index_bits", bits)
	set("slot_cap", slotCap)
	set("by_thread", byThread)
}

// attachOrder puts the programs at the ends of interrupts before those at their
// beginnings: a beginning that is seen without its end would stay on the CPU's
// stack of interrupts for good.
func attachOrder(programs map[string]*ebpf.Program) []string {
	return slices.SortedFunc(maps.Keys(programs), func(a, b string) int {
		late := func(name string) int {
			if strings.HasSuffix(name, "_entry") {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(late(a), late(b)), cmp.Compare(a, b))
	})
}

// prune takes out the programs whose tracepoint this kernel does not have.
func (k *kernel) prune(spec *ebpf.CollectionSpec) error {
	types, err := btf.LoadKernelSpec()
	if err != nil {
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			return ErrPrivilege
		}
		return &KernelError{Feature: "BTF type information (CONFIG_DEBUG_INFO_BTF)", Err: err}
	}
	for name, p := range spec.Programs {
		var td *btf.Typedef
		if types.TypeByName("btf_trace_"+p.AttachTo, &td) != nil {
			delete(spec.Programs, name)
			k.missed = append(k.missed, p.AttachTo)
		}
	}
	if spec.Programs["on_switch"] == nil {
		return &KernelError{Feature: "the sched_switch tracepoint"}
	}
	return nil
}

// read empties the ring now and then: the programs never wake it.
func (k *kernel) read() {
	defer close(k.done)
	go func() {
		tick := time.NewTicker(flushEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = k.reader.Flush()
			case <-k.stop:
				_ = k.reader.Flush()
				return
			}
		}
	}()
	var rec ringbuf.Record
	var e bpf.ProgramsEvent
	for {
		err := k.reader.ReadInto(&rec)
		switch {
		case errors.Is(err, ringbuf.ErrFlushed):
			select {
			case <-k.stop:
				return
			default:
				continue
			}
		case err != nil:
			return
		}
		if len(rec.RawSample) < int(unsafe.Sizeof(e)) {
			continue
		}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e)), rec.RawSample)
		k.mu.Lock()
		if len(k.events) < maxEvents {
			k.events = append(k.events, e)
		} else {
			k.dropped++
		}
		k.mu.Unlock()
	}
}

// watch adds sockets whose incoming data is of interest.
func (k *kernel) watch(cookie uint64) error {
	one := uint32(1)
	return k.coll.Maps["sockets"].Put(&cookie, &one)
}

// detach ends the programs; what they gave can still be read.
func (k *kernel) detach() {
	for _, l := range k.links {
		_ = l.Close()
	}
	k.links = nil
	select {
	case <-k.stop:
	default:
		close(k.stop)
	}
	if !k.began.IsZero() {
		<-k.done
		<-k.clocked
	}
}

// collectPending adds the times off the CPU that have not ended: of calls that hang,
// these are all there is. It is called when the programs are detached. Looking up a
// thread's storage takes a descriptor of that thread (Linux 6.9, PIDFD_THREAD).
func (k *kernel) collectPending(tids []int, end int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pendingKnown = true
	for _, tid := range tids {
		fd, err := unix.PidfdOpen(tid, unix.O_EXCL)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			k.pendingKnown = false
			return
		}
		var p bpf.ProgramsPending
		key := int32(fd)
		err = k.coll.Maps["threads"].Lookup(&key, &p)
		_ = unix.Close(fd)
		if err != nil || p.Start == 0 || int64(p.Start) >= end || p.Tag.Found == 0 {
			continue
		}
		k.events = append(k.events, bpf.ProgramsEvent{
			Kind: kindOffCPU, Tid: uint32(tid), Start: p.Start, Wake: p.Wake, End: uint64(end),
			Call: p.Tag.Call, Slot: p.Tag.Slot, Conn: p.Tag.Conn, Stage: p.Tag.Stage, SlotKind: p.Tag.Kind, Profiler: p.Tag.Profiler,
			State: p.State, Syscall: p.Syscall, UserStack: p.UserStack, KernelStack: p.KernelStack, Flags: p.Flags,
		})
	}
}

// Close gives everything back.
func (k *kernel) Close() {
	k.detach()
	if k.reader != nil {
		_ = k.reader.Close()
	}
	if k.coll != nil {
		k.coll.Close()
	}
}

// The kernel measures how long BPF programs run only on request, and that by itself
// costs 2 to 3 % of a busy echo's throughput here: so for a part of the time.
const (
	clockOn  = 60 * time.Millisecond
	clockOff = 940 * time.Millisecond
)

// clock switches the measuring on and off until the capture ends.
func (k *kernel) clock() {
	defer close(k.clocked)
	wait := func(d time.Duration) bool {
		select {
		case <-k.stop:
			return false
		case <-time.After(d):
			return true
		}
	}
	for {
		stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
		if err != nil {
			return // only the overhead figure is missing then
		}
		on := time.Now()
		more := wait(clockOn)
		k.timed.Add(int64(time.Since(on)))
		_ = stats.Close()
		if !more || !wait(clockOff) {
			return
		}
	}
}

// runtime is how long all programs have run since they were attached, extrapolated
// from the time in which that was measured.
func (k *kernel) runtime() uint64 {
	timed := k.timed.Load()
	if timed == 0 {
		return 0
	}
	var sum time.Duration
	for _, p := range k.coll.Programs {
		if s, err := p.Stats(); err == nil {
			sum += s.Runtime
		}
	}
	return uint64(float64(sum) * float64(time.Since(k.began)) / float64(timed))
}

func (k *kernel) counter(which uint32) uint64 {
	var per []uint64
	if k.coll.Maps["counters"].Lookup(&which, &per) != nil {
		return 0
	}
	var n uint64
	for _, v := range per {
		n += v
	}
	return n
}

// stack reads one stack, innermost first.
func (k *kernel) stack(id int32) []uint64 {
	if id < 0 {
		return nil
	}
	var pcs [64]uint64
	key := uint32(id)
	if k.coll.Maps["stacks"].Lookup(&key, &pcs) != nil {
		return nil
	}
	for i, pc := range pcs {
		if pc == 0 {
			return pcs[:i]
		}
	}
	return pcs[:]
}

func comm(c [16]int8) string {
	b := unsafe.Slice((*byte)(unsafe.Pointer(&c[0])), len(c))
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return '?'
		}
		return r
	}, string(b))
}
