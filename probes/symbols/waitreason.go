package symbols

import "strings"

// The texts of runtime.waitReason by its values (src/runtime/runtime2.go). Go
// 1.26 has the same reasons as 1.25 in another order.
var (
	waitReasons125 = []string{
		"", "GC assist marking", "IO wait", "chan receive (nil chan)",
		"chan send (nil chan)", "dumping heap", "garbage collection", "garbage collection scan",
		"panicwait", "select", "select (no cases)", "GC assist wait",
		"GC sweep wait", "GC scavenge wait", "chan receive", "chan send",
		"finalizer wait", "force gc (idle)", "GOMAXPROCS updater (idle)", "semacquire",
		"sleep", "sync.Cond.Wait", "sync.Mutex.Lock", "sync.RWMutex.RLock",
		"sync.RWMutex.Lock", "sync.WaitGroup.Wait", "trace reader (blocked)", "wait for GC cycle",
		"GC worker (idle)", "GC worker (active)", "preempted", "debug call",
		"GC mark termination", "stopping the world", "flushing proc caches", "trace goroutine status",
		"trace proc status", "page trace flush", "coroutine", "GC weak to strong wait",
		"synctest.Run", "synctest.Wait", "chan receive (durable)", "chan send (durable)",
		"select (durable)", "sync.WaitGroup.Wait (durable)", "cleanup wait",
	}
	waitReasons126 = []string{
		"", "GC assist marking", "IO wait", "dumping heap",
		"garbage collection", "garbage collection scan", "panicwait", "GC assist wait",
		"GC sweep wait", "GC scavenge wait", "finalizer wait", "force gc (idle)",
		"GOMAXPROCS updater (idle)", "semacquire", "sleep", "chan receive (nil chan)",
		"chan send (nil chan)", "select (no cases)", "select", "chan receive",
		"chan send", "sync.Cond.Wait", "sync.Mutex.Lock", "sync.RWMutex.RLock",
		"sync.RWMutex.Lock", "sync.WaitGroup.Wait", "trace reader (blocked)", "wait for GC cycle",
		"GC worker (idle)", "GC worker (active)", "preempted", "debug call",
		"GC mark termination", "stopping the world", "flushing proc caches", "trace goroutine status",
		"trace proc status", "page trace flush", "coroutine", "GC weak to strong wait",
		"synctest.Run", "synctest.Wait", "chan receive (durable)", "chan send (durable)",
		"select (durable)", "sync.WaitGroup.Wait (durable)", "cleanup wait",
	}
)

// waitReasons gives the texts of a binary: what it says itself, if it has a
// symbol table, else what its version is known to have.
func waitReasons(f *elfFile, version string) []string {
	if s, ok := lookup(f, "runtime.waitReasonStrings"); ok {
		if got := readReasons(f, s); got != nil {
			return got
		}
	}
	for prefix, reasons := range map[string][]string{"go1.25": waitReasons125, "go1.26": waitReasons126} {
		// What follows is a patch release, a release candidate or an experiment.
		if rest, ok := strings.CutPrefix(version, prefix); ok && (rest == "" || strings.ContainsAny(rest[:1], ".r -")) {
			return reasons
		}
	}
	return nil
}

// readReasons reads the array of strings at s: an address and a length each.
func readReasons(f *elfFile, s symbol) []string {
	const maxReasons, maxText = 256, 128
	n := s.size / 16
	if n < 2 || n > maxReasons {
		return nil
	}
	b := make([]byte, n*16)
	if !f.read(s.addr, b) {
		return nil
	}
	(modules{f: f}).relocations(func(off, addend uint64) {
		if off >= s.addr && off-s.addr <= uint64(len(b))-8 && (off-s.addr)%16 == 0 {
			putU64(b[off-s.addr:], addend)
		}
	})
	out := make([]string, n)
	for i := range out {
		size := u64(b[i*16+8:])
		text := make([]byte, min(size, maxText))
		if size > maxText || size > 0 && !f.read(u64(b[i*16:]), text) {
			return nil
		}
		out[i] = strings.ToValidUTF8(string(text), "\uFFFD")
	}
	return out
}
