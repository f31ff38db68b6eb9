package probes

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// twinsTarget has a profiler for each of two listeners, and as many idle ones as it is told.
func twinsTarget() {
	var idle int
	_, _ = fmt.Sscan(os.Getenv("RPCPROF_TEST_IDLE"), &idle)
	go serveAs(os.Getenv("RPCPROF_TEST_FIRST"), 2, func() { kernelSleep(pause) })
	go serveAs(os.Getenv("RPCPROF_TEST_SECOND"), 2, func() { time.Sleep(2 * pause) })
	for range idle {
		prof := rpcprof.New(rpcprof.Config{Service: "idle"})
		defer prof.Close()
	}
	time.Sleep(time.Minute)
}

// threadsTarget is what a service in another language is: each of its calls has a
// thread of its own, and it writes its segment itself.
func threadsTarget() {
	w, err := segment.NewWriter(segment.Options{Service: "threads", Shards: threadWorkers})
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	h := w.Header
	copy(h.Sections[h.SectionCount].Name[:], "newer")
	h.Sections[h.SectionCount].Size = 64
	h.SectionCount++
	h.Flags |= segment.FlagThreads
	h.StartNS = rpcprof.Now()
	h.CallHigh = 2 * threadWorkers
	method, _ := w.AddMethod("target.Target/Call", segment.Server)
	inner, _ := w.AddMethod("target.Target/Inner", segment.Server)
	handler := threadHandlers[os.Getenv("RPCPROF_TEST_HANDLER")]
	for i := range threadWorkers {
		go (&threadWorker{w: w, n: uint32(i), method: method, inner: inner}).run(handler)
	}
	if service := os.Getenv("RPCPROF_TEST_FIRST"); service != "" {
		serveAs(service, 2, func() { time.Sleep(2 * pause) }) // goroutines beside them
	}
	fmt.Println("ready")
	time.Sleep(time.Minute)
}

const threadWorkers = 2

var threadHandlers = map[string]func(*threadWorker){
	"sleep":  func(*threadWorker) { kernelSleep(pause) },
	"futex":  func(*threadWorker) { futexWait(pause) },
	"user":   func(*threadWorker) { spinUser(pause) },
	"kernel": func(*threadWorker) { spinKernel(pause) },
	"nested": func(w *threadWorker) {
		w.serve(w.inner, 1, func(*threadWorker) { kernelSleep(pause) })
		spinUser(pause)
	},
	"hang": func(*threadWorker) {
		if hanging.Load() {
			futexWait(time.Minute)
		}
		kernelSleep(pause)
	},
}

var hanging atomic.Bool

func init() {
	if os.Getenv("RPCPROF_TEST_HANDLER") == "hang" {
		signalled(func() { hanging.Store(true) })
	}
}

// signalled does something when the test sends SIGUSR1.
func signalled(f func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGUSR1)
	go func() { <-c; f() }()
}

type threadWorker struct {
	w             *segment.Writer
	n             uint32
	method, inner uint32
	tid           uint32
	count         uint64
}

func (t *threadWorker) run(handler func(*threadWorker)) {
	runtime.LockOSThread()
	t.tid = uint32(unix.Gettid())
	h := t.w.Header
	role := &t.w.Slots[h.CallSlots+t.n]
	role.Queue, role.TID, role.G, role.Goid, role.Stamps[0] = 1, t.tid, uint64(t.tid), uint64(t.tid), rpcprof.Now()
	role.Kind = segment.KindWorker
	for high := &h.RoleHigh; ; {
		if old := atomic.LoadUint32(high); old > h.CallSlots+t.n || atomic.CompareAndSwapUint32(high, old, h.CallSlots+t.n+1) {
			break
		}
	}
	for {
		t.serve(t.method, 0, handler)
	}
}

// serve makes one call on this thread, at a depth in which others may be.
func (t *threadWorker) serve(method, depth uint32, handler func(*threadWorker)) {
	now := rpcprof.Now()
	t.count++
	id := segment.CallID(t.w.Header.Seq, int(t.n), t.count)
	worker := t.w.Header.CallSlots + t.n
	s, number := &t.w.Slots[2*t.n+depth], 2*t.n+depth
	s.Method, s.Stage, s.Worker, s.Queue, s.TID = method, segment.StageHandler, worker, 1, t.tid
	s.Stamps = [segment.Stamps]int64{now, now, now}
	s.Goid, s.Kind = uint64(t.tid), segment.KindCall
	atomic.StoreUint64(&s.G, uint64(t.tid))
	atomic.StoreUint64(&s.Call, id)
	was := t.bind(number)
	handler(t)
	done := rpcprof.Now()
	t.bind(was)
	atomic.StoreUint64(&s.G, 0)
	s.Kind = segment.KindFree
	atomic.StoreUint64(&s.Call, 0)

	shard := &t.w.Shards[t.n]
	head := shard.Head.Head
	shard.Ring[head%uint64(len(shard.Ring))] = segment.Record{
		Seq: head + 1, Call: id, Method: method, Outcome: segment.OK, Workers: threadWorkers, Stamps: [segment.Stamps]int64{now, now, now, done, done, done},
		Release: done, Offset: segment.NoOffset, Queue: 1, Worker: worker, HandlerTID: t.tid, WriteTID: t.tid, ThreadCPU: int64(pause),
	}
	atomic.StoreUint64(&shard.Head.Head, head+1)
}

// bind leads the index to a slot and gives the one it led to before.
func (t *threadWorker) bind(slot uint32) (was uint32) {
	b := &t.w.Index[segment.BucketOf(uint64(t.tid), t.w.IndexBits)]
	for i := range b {
		e := &b[i]
		if g := atomic.LoadUint64(&e.G); g == uint64(t.tid) || g == 0 && atomic.CompareAndSwapUint64(&e.G, 0, uint64(t.tid)) {
			was = e.Slot
			atomic.StoreUint32(&e.Slot, slot)
			return was
		}
	}
	return 0
}

//go:noinline
func futexWait(d time.Duration) {
	var word uint32
	ts := unix.NsecToTimespec(int64(d))
	const privateWait = 128                                                                                                        // FUTEX_WAIT_PRIVATE
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&word)), privateWait, 0, uintptr(unsafe.Pointer(&ts)), 0, 0) // where it hangs
}

var sink atomic.Uint64

// spinUser burns CPU time of its thread outside the kernel.
func spinUser(d time.Duration) {
	for end := threadCPU() + d; threadCPU() < end; {
		n := uint64(0)
		for i := range uint64(100_000) {
			n += i ^ n<<1
		}
		sink.Store(n)
	}
}

var (
	zeros, _ = unix.Open("/dev/zero", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	zeroed   [256 << 10]byte
)

// spinKernel burns it inside.
func spinKernel(d time.Duration) {
	for end := threadCPU() + d; threadCPU() < end; {
		_, _ = unix.Read(zeros, zeroed[:])
	}
}

const used = 300 * time.Millisecond

// usageTarget has a thread that stays, a thread that ends, both after a known CPU time,
// and one that sleeps.
func usageTarget() {
	dir := os.Getenv("RPCPROF_TEST_DIR")
	begin, done := make(chan bool), make(chan bool)
	thread := func(name string, cpu time.Duration, stays bool) {
		<-begin
		runtime.LockOSThread() // and dies with it, since it does not unlock
		_ = os.WriteFile("/proc/thread-self/comm", []byte(name), 0)
		if cpu > 0 {
			spinUser(cpu - threadCPU())
		}
		done <- true
		if stays {
			kernelSleep(time.Minute)
		}
	}
	go thread("stays", used, true)
	go thread("ends", used, false)
	go thread("sleeps", 0, true)
	signalled(func() {
		close(begin)
		for range 3 {
			<-done
		}
		time.Sleep(100 * time.Millisecond) // until the one that ends has
		_ = os.WriteFile(filepath.Join(dir, "done"), nil, 0o644)
	})
	fmt.Println("ready")
	time.Sleep(time.Minute)
}
