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
	"github.com/rpcprof/toolkit/rpcprof/segment"
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

	mu      sync.Mutex
	events  []bpf.ProgramsEvent
	dropped uint64 // beyond maxEvents
	done    chan struct{}
	stop    chan struct{}
	began   time.Time
	clocked chan struct{}
	timed   atomic.Int64 // ns for which the programs' run time was measured
}

// Kinds of events (enum kind in rpcprof.bpf.c).
const (
	kindOffCPU = 1 + iota
	kindHardIRQ
	kindSoftIRQ
	kindDataReady
	kindThreadNew
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

// attachKernel loads and attaches the programs to a process. h is the header of
// its segment, nil when it has none: then nothing is tagged.
func attachKernel(pid int, h *segment.Header) (*kernel, error) {
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
	if h != nil && h.Flags&segment.FlagGoroutines != 0 {
		set("tagging", uint32(1))
		set("index_addr", h.Base+uint64(h.IndexOff))
		set("slots_addr", h.Base+uint64(h.SlotsOff))
		set("index_bits", h.IndexBits)
		set("slot_cap", h.SlotCap)
		set("tls_off", h.TLSOff)
		set("g_m", h.GM)
		set("g_goid", h.GGoid)
		set("m_curg", h.MCurG)
	}
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
