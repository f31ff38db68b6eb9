package faults

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Pin binds all threads of this process, and those it makes later, to the CPUs.
func Pin(cpus ...int) error {
	set := cpuSet(cpus...)
	// A thread that is made meanwhile may have the affinity of one not yet bound:
	// go on until a pass finds no new ones.
	seen := map[int]bool{}
	for found := true; found; {
		found = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err != nil || seen[tid] {
				continue
			}
			seen[tid], found = true, true
			if err := unix.SchedSetaffinity(tid, set); err != nil && err != unix.ESRCH {
				return fmt.Errorf("bind to CPUs %v: %w", cpus, err)
			}
		}
	}
	return nil
}

func cpuSet(cpus ...int) *unix.CPUSet {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	return &set
}

// becomeHog makes the calling thread, which must be locked, a hog's. It says whether
// the thread has real-time priority now.
func becomeHog(o HogOptions) (raised bool, err error) {
	for _, f := range []string{"/proc/self/comm", "/proc/thread-self/comm"} {
		if err := os.WriteFile(f, []byte(HogName), 0); err != nil {
			return false, err
		}
	}
	if err := unix.SchedSetaffinity(0, cpuSet(o.CPU)); err != nil {
		return false, fmt.Errorf("bind to CPU %d: %w", o.CPU, err)
	}
	return raise() == nil, nil
}

// raise gives the calling thread the lowest real-time priority.
func raise() error {
	attr := unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1,
		Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}
	return unix.SchedSetAttr(0, &attr, 0)
}

// mayRaise tries it on a thread that ends.
func mayRaise() bool {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		result <- raise()
	}()
	return <-result == nil
}

// cpuTime gives the CPU time that the process has used.
func cpuTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// pacer waits more exactly than the runtime's timers do, whose grain is about a
// millisecond.
type pacer struct{}

func newPacer() *pacer {
	runtime.LockOSThread()
	return &pacer{}
}

func (*pacer) close() { runtime.UnlockOSThread() }

// until waits until then; it gives false if ctx is done. It looks at ctx a few
// times a second.
func (*pacer) until(ctx context.Context, then time.Time) bool {
	for ctx.Err() == nil {
		d := time.Until(then)
		if d <= 0 {
			return true
		}
		ts := unix.NsecToTimespec(int64(min(d, 100*time.Millisecond)))
		_ = unix.Nanosleep(&ts, nil) // interrupted or not, the clock says how long it was
	}
	return false
}
