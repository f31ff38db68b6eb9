package rpcprof

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Config sizes a Profiler. The zero value is right for most services.
type Config struct {
	// Service names the service in reports; at most 63 bytes are kept.
	Service string
	// Methods bounds how many methods are told apart (default 256); calls of
	// others are recorded as "_other".
	Methods int
	// CallsInFlight bounds how many calls can be seen while they run (default
	// 4,096). Calls beyond it are recorded all the same.
	CallsInFlight int
	// NoControl refuses requests from outside, such as for a window of the execution
	// trace. Without it, the process's own user and root may ask, within bounds.
	NoControl bool
}

// Profiler records the calls of one service.
type Profiler struct {
	seg       *segment.Writer
	number    uint32 // tells apart several profilers of one process
	err       error
	shards    []shard
	own       int // how many of them are one P's; the last is shared
	callSlots uint32
	nchunks   atomic.Int32
	chunks    [maxChunks]atomic.Pointer[chunk]
	free      pool // calls with a slot in the segment
	extra     pool // calls without
	off       *offsets
	queues    atomic.Uint32

	regions names[string]
	tasks   names[uintptr]
	minder  *minder

	mu                     sync.Mutex
	roles                  []uint32 // free role slots
	methods                map[methodKey]*Method
	other                  [2]*Method // by side
	otherRegion, otherTask *Method
	closed                 atomic.Bool // set with the lock held
}

// profilers are those that record, for regions that no context leads to.
var (
	profilers   atomic.Pointer[[]weak.Pointer[Profiler]]
	profilersMu sync.Mutex
)

// enlist adds p to the profilers, or takes it out, and drops those that are gone.
func (p *Profiler) enlist(in bool) {
	profilersMu.Lock()
	defer profilersMu.Unlock()
	var live []weak.Pointer[Profiler]
	if old := profilers.Load(); old != nil {
		for _, w := range *old {
			if q := w.Value(); q != nil && q != p {
				live = append(live, w)
			}
		}
	}
	if in {
		live = append(live, weak.Make(p))
	}
	profilers.Store(&live)
}

// others is how many entries of the method table are for names beyond the bound.
const others = int(segment.Sides)

// maxPs is how many Ps have a shard of their own; those beyond share one.
const maxPs = 256

// New makes a Profiler. It is always usable; Err says what is degraded. With
// RPCPROF=off in the environment it records nothing.
//
// Recording needs about 2 MB of memory at once and, as calls come, for each P up
// to 1 MB for finished calls, as much again a quarter for failed ones, and for
// each method 36 KB for histograms and 6 KB for its slowest calls.
func New(cfg Config) *Profiler {
	if os.Getenv("RPCPROF") == "off" {
		return &Profiler{err: errors.New("switched off by RPCPROF=off")}
	}
	startClock()
	slots := cfg.CallsInFlight
	if slots <= 0 {
		slots = 4096
	}
	slots = (slots + chunkSize - 1) / chunkSize * chunkSize
	shards := min(max(runtime.NumCPU(), runtime.GOMAXPROCS(0)), maxPs)
	methods := cfg.Methods
	if methods <= 0 {
		methods = 256
	}
	w, err := segment.NewWriter(segment.Options{
		Service: cfg.Service, Methods: min(methods, segment.MaxMethods) + others, CallSlots: slots, Shards: shards,
	})
	p := &Profiler{seg: w, methods: map[methodKey]*Method{}}
	if w == nil {
		p.err = err
		return p
	}
	p.number = w.Header.Seq
	p.minder = newMinder(w)
	runtime.AddCleanup(p, func(m *minder) { m.abandon() }, p.minder)
	if err != nil {
		w.Degrade(err.Error())
	}
	p.callSlots = w.Header.CallSlots
	p.shards = make([]shard, len(w.Shards))
	if !raceEnabled {
		p.own = len(p.shards) - 1
	}
	for i := range p.shards {
		s := &p.shards[i]
		s.Shard, s.id, s.mask = w.Shards[i], i, uint64(len(w.Shards[i].Ring)-1)
		s.base = segment.CallID(p.number, i, 0)
		s.keep = make([]keeper, len(w.Methods))
	}
	for i := int(w.Header.SlotCap) - 1; i >= int(p.callSlots); i-- {
		p.roles = append(p.roles, uint32(i))
	}
	h := w.Header
	h.PID = uint32(os.Getpid())
	copy(h.GoVersion[:len(h.GoVersion)-1], runtime.Version())
	off, offErr := findOffsets()
	if offErr != nil {
		w.Degrade("goroutines cannot be joined: " + offErr.Error())
		err = errors.Join(err, offErr)
	} else {
		p.off = off
		off.publish(h)
	}
	if !cfg.NoControl && !errors.Is(err, segment.ErrHeap) { // what is not shared cannot be asked either
		var ctlErr error
		if p.minder.control, ctlErr = newControl(h.Seq); ctlErr != nil {
			w.Degrade("nothing can be asked for from outside: " + ctlErr.Error())
			err = errors.Join(err, ctlErr)
		}
	}
	h.CPUEvery = cpuEvery()
	p.other[segment.Server] = p.Method("_other")
	p.other[segment.Client] = p.Client("_other")
	p.otherRegion, p.otherTask = p.add("_other", segment.Region), p.add("_other", segment.Task)
	// The start time last: attach takes the segments of a process that have one.
	atomic.StoreInt64(&h.StartNS, Now())
	p.err = err
	p.enlist(true)
	go p.minder.run()
	return p
}

// Err says what is degraded, or is nil: no shared memory, so that nothing can be
// attached; no goroutine offsets, so that kernel events cannot be joined to calls by
// goroutine; no control file, so that nothing can be asked for from outside; or all,
// by RPCPROF=off. But for that, the Profiler records nevertheless.
func (p *Profiler) Err() error {
	if p == nil {
		return nil
	}
	return p.err
}

// Close ends recording. Calls that are under way may still be stamped and ended;
// nothing more is recorded. It may be called more than once.
func (p *Profiler) Close() error {
	if p == nil || p.seg == nil {
		return nil
	}
	p.mu.Lock()
	already := p.closed.Swap(true)
	p.mu.Unlock()
	if already {
		return nil
	}
	p.enlist(false)
	p.minder.close()
	// The mapping stays until nothing refers to the Profiler any more: goroutines
	// may still hold calls that point into it.
	p.seg.Close()
	return nil
}

// Now is the time for a stamp that several calls share, as package Now gives it; 0,
// which costs nothing, where p records nothing.
func (p *Profiler) Now() int64 {
	if p == nil || p.seg == nil {
		return 0
	}
	return Now()
}
