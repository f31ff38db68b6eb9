package probes

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rpcprof/toolkit/rpcprof/profile"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// sampler looks from outside at the goroutines that the segment's slots name,
// and only those: what state each is in and, where it is parked, in which line.
// It stops nothing, and spends at most 1 % of a CPU.
type sampler struct {
	pid  int
	h    segment.Header // for the goroutine offsets, which are the process's
	of   []*service
	need int // bytes of a g that are read

	// Kept from pass to pass.
	slots  []segment.SlotState
	all    []seen
	addrs  []uint64
	into   [][]byte
	buf    []byte
	local  []unix.Iovec
	remote []unix.RemoteIovec

	mu        sync.Mutex
	samples   []rawSample
	stacks    map[string]int32
	stackPCs  [][]uint64
	discarded atomic.Uint64
	passes    atomic.Uint64
	err       error // why it ended early
	stop      chan struct{}
	done      chan struct{}
}

// rawSample is a sample before its stack has names.
type rawSample struct {
	at     int64
	of     *service
	owner  profile.Owner
	status uint8
	reason uint8
	stack  int32
}

const (
	maxDepth   = 24      // frames of a parked stack
	slotHead   = 16      // bytes of a slot that name its call and goroutine
	maxSamples = 4 << 20 // of one window
	gScan      = 0x1000  // a bit that the collector sets in a status
	minPeriod  = 2 * time.Millisecond
	share      = 100 // of one CPU, 1/share at most
)

// States of a goroutine (runtime2.go).
const (
	gRunnable  = 1
	gRunning   = 2
	gSyscall   = 3
	gWaiting   = 4
	gCopystack = 8
	gPreempted = 9
)

func startSampler(pid int, of []*service) (*sampler, error) {
	known := slices.IndexFunc(of, func(s *service) bool { return s.header.Flags&segment.FlagGoroutines != 0 })
	if known < 0 {
		return nil, errors.New("the library could not find the goroutine offsets in the target")
	}
	h := of[known].header
	need := int(max(h.GStatus+4, h.GWaitReason+1, h.GGoid+8, h.GSchedPC+8, h.GSchedBP+8))
	if need > 4096 {
		return nil, errors.New("the target's goroutine offsets are not plausible")
	}
	s := &sampler{pid: pid, h: h, of: slices.Clone(of), need: need, stacks: map[string]int32{}, stop: make(chan struct{}), done: make(chan struct{})}
	// One byte, to learn whether it is permitted.
	var b [8]byte
	if err := s.read([]uint64{h.Base}, [][]byte{b[:]}); err != nil {
		return nil, err
	}
	go s.run()
	return s, nil
}

// finish ends sampling. A read of a page that the target holds back can block;
// then the thread is left behind.
func (s *sampler) finish() {
	close(s.stop)
	select {
	case <-s.done:
	case <-time.After(time.Second):
	}
}

func (s *sampler) run() {
	defer close(s.done)
	period := minPeriod
	var spent time.Duration
	for {
		// Jittered, so that it does not march in step with a periodic load.
		d := period/2 + time.Duration(rand.Int64N(int64(period)))
		select {
		case <-s.stop:
			return
		case <-time.After(d):
		}
		runtime.LockOSThread() // so that the thread's clock measures the pass
		began := threadCPU()
		err := s.pass()
		spent += threadCPU() - began + wakeCost
		runtime.UnlockOSThread()
		if err != nil {
			s.err = err
			return
		}
		// The mean cost of a pass times share, but never faster than minPeriod.
		n := s.passes.Add(1)
		period = max(minPeriod, share*spent/time.Duration(n))
	}
}

// wakeCost is what it takes to wake up for a pass, which the pass itself does not
// see: the timer, a thread, the runtime's monitor. Measured as the difference of the
// process's CPU time with and without the sampler, by passes.
const wakeCost = 30 * time.Microsecond

func threadCPU() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// read copies several pieces of the target's memory in one system call.
func (s *sampler) read(addrs []uint64, into [][]byte) error {
	const batch = 512 // below IOV_MAX
	for len(addrs) > 0 {
		n := min(batch, len(addrs))
		local, remote := s.local[:0], s.remote[:0]
		want := 0
		for i := range n {
			l := unix.Iovec{Base: &into[i][0]}
			l.SetLen(len(into[i]))
			local = append(local, l)
			remote = append(remote, unix.RemoteIovec{Base: uintptr(addrs[i]), Len: len(into[i])})
			want += len(into[i])
		}
		s.local, s.remote = local, remote
		got, err := unix.ProcessVMReadv(s.pid, local, remote, 0)
		if err != nil {
			if !errors.Is(err, unix.EFAULT) || n == 1 {
				return err
			}
			got = 0
		}
		if got < want { // one address is bad: those before it were copied, it is skipped
			for i := range n {
				if got < len(into[i]) {
					clear(into[i])
					addrs, into = addrs[i+1:], into[i+1:]
					break
				}
				got -= len(into[i])
			}
			continue
		}
		addrs, into = addrs[n:], into[n:]
	}
	return nil
}

// seen is one goroutine in one pass.
type seen struct {
	of     *service
	owner  profile.Owner
	g      uint64
	goid   uint64
	body   []byte
	again  []byte // and once more, for a call
	slot   []byte // the head of its slot then
	frames []uint64
}

func (s *sampler) pass() error {
	all := s.all[:0]
	for i := 0; i < len(s.of); i++ {
		of := s.of[i]
		slots, err := of.forSlots.SlotsInto(s.slots[:0])
		if err != nil {
			if len(s.of) == 1 {
				return err
			}
			s.of = slices.Delete(s.of, i, i+1)
			i--
			continue
		}
		s.slots = slots
		for _, sl := range slots {
			if sl.G == 0 || sl.G%8 != 0 {
				continue
			}
			all = append(all, seen{of: of, owner: profile.Owner{Call: sl.Call, Slot: sl.Index, Kind: sl.Kind, Conn: sl.Conn}, g: sl.G, goid: sl.Goid})
		}
	}
	if len(all) == 0 {
		return nil
	}
	s.all = all
	addrs, into := s.addrs[:0], s.into[:0]
	if need := len(all) * s.need; len(s.buf) < need {
		s.buf = make([]byte, 2*need)
	}
	for i := range all {
		all[i].body = s.buf[i*s.need : (i+1)*s.need]
		addrs, into = append(addrs, all[i].g), append(into, all[i].body)
	}
	s.addrs, s.into = addrs, into
	at := monotonic()
	if err := s.read(addrs, into); err != nil {
		return s.ended(err)
	}
	if err := s.walk(all); err != nil {
		return s.ended(err)
	}
	if err := s.lookAgain(all); err != nil {
		return s.ended(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range all {
		o := &all[i]
		if s.changed(o) {
			s.discarded.Add(1)
			continue
		}
		if len(s.samples) >= maxSamples {
			s.discarded.Add(1)
			continue
		}
		r := rawSample{at: at, of: o.of, owner: o.owner, status: uint8(s.status(o.body)), reason: o.body[s.h.GWaitReason], stack: -1}
		if r.status == gWaiting && len(o.frames) > 0 {
			r.stack = s.intern(o.frames)
		}
		s.samples = append(s.samples, r)
	}
	return nil
}

// ended tells a target that has gone from one that refuses.
func (s *sampler) ended(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return errTargetGone
	}
	return err
}

var errTargetGone = errors.New("the target has ended")

func (s *sampler) status(body []byte) uint32 {
	return binary.LittleEndian.Uint32(body[s.h.GStatus:]) &^ gScan
}

// lookAgain reads the calls' goroutines once more, and their slots: a call may have
// ended meanwhile and left its goroutine to another. A role stays.
func (s *sampler) lookAgain(all []seen) error {
	var addrs []uint64
	var into [][]byte
	for i := range all {
		o := &all[i]
		if o.owner.Call == 0 {
			continue
		}
		buf := make([]byte, s.need+slotHead)
		o.again, o.slot = buf[:s.need], buf[s.need:]
		addrs = append(addrs, o.g, o.of.header.Base+uint64(o.of.header.SlotsOff)+uint64(o.owner.Slot)*segment.SlotSize)
		into = append(into, o.again, o.slot)
	}
	return s.read(addrs, into)
}

// changed says whether the goroutine moved on while it was read, or is another
// one at the same address.
func (s *sampler) changed(o *seen) bool {
	u64 := func(b []byte, off uint32) uint64 { return binary.LittleEndian.Uint64(b[off:]) }
	if u64(o.body, s.h.GGoid) != o.goid {
		return true
	}
	if o.again == nil {
		return false
	}
	if u64(o.again, s.h.GGoid) != o.goid || u64(o.slot, 0) != o.owner.Call || u64(o.slot, 8) != o.g {
		return true
	}
	if s.status(o.body) != s.status(o.again) {
		return true
	}
	return s.status(o.body) == gWaiting &&
		(u64(o.body, s.h.GSchedPC) != u64(o.again, s.h.GSchedPC) ||
			u64(o.body, s.h.GSchedBP) != u64(o.again, s.h.GSchedBP) ||
			o.body[s.h.GWaitReason] != o.again[s.h.GWaitReason])
}

// walk follows the frame pointers of the parked calls, all of them a level at a time.
func (s *sampler) walk(all []seen) error {
	type walker struct {
		o  *seen
		bp uint64
	}
	var ws []walker
	for i := range all {
		o := &all[i]
		if o.owner.Call != 0 && s.status(o.body) == gWaiting {
			o.frames = append(o.frames, binary.LittleEndian.Uint64(o.body[s.h.GSchedPC:]))
			ws = append(ws, walker{o, binary.LittleEndian.Uint64(o.body[s.h.GSchedBP:])})
		}
	}
	buf := make([]byte, 16*len(ws))
	for depth := 0; depth < maxDepth && len(ws) > 0; depth++ {
		addrs, into := make([]uint64, len(ws)), make([][]byte, len(ws))
		for i := range ws {
			addrs[i], into[i] = ws[i].bp, buf[16*i:16*i+16]
		}
		if err := s.read(addrs, into); err != nil && !errors.Is(err, unix.EFAULT) {
			return err
		}
		next := ws[:0]
		for i, w := range ws {
			bp, pc := binary.LittleEndian.Uint64(into[i]), binary.LittleEndian.Uint64(into[i][8:])
			if pc == 0 {
				continue
			}
			w.o.frames = append(w.o.frames, pc)
			if bp > w.bp && bp-w.bp < 1<<26 { // the stack grows down, so callers are above
				next = append(next, walker{w.o, bp})
			}
		}
		ws = next
	}
	return nil
}

func (s *sampler) intern(pcs []uint64) int32 {
	var b strings.Builder
	for _, pc := range pcs {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], pc)
		b.Write(w[:])
	}
	k := b.String()
	i, ok := s.stacks[k]
	if !ok {
		i = int32(len(s.stackPCs))
		s.stacks[k] = i
		s.stackPCs = append(s.stackPCs, append([]uint64(nil), pcs...))
	}
	return i
}

// goCause says what a goroutine's state means for the time it was found in.
func goCause(status uint8, reason string) profile.Cause {
	switch status {
	case gRunnable, gPreempted:
		return profile.GoSched
	case gRunning, gCopystack:
		return profile.CPUUser
	case gSyscall:
		return profile.CPUKernel
	}
	switch {
	case strings.HasPrefix(reason, "chan "), strings.HasPrefix(reason, "select"):
		return profile.GoChan
	case strings.HasPrefix(reason, "sync."), reason == "semacquire":
		return profile.GoLock
	case reason == "IO wait":
		return profile.GoNet
	case reason == "sleep":
		return profile.GoSleep
	case strings.HasPrefix(reason, "GC "), strings.HasPrefix(reason, "garbage"), strings.HasPrefix(reason, "wait for GC"), strings.Contains(reason, "the world"):
		return profile.GoGC
	case reason == "preempted":
		return profile.GoSched
	}
	return profile.GoOther
}
