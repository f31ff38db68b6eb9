package threads

import (
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A thread that used a known time of CPU has that time, one that slept has none,
// and what was before the window does not count.
func TestThreads(t *testing.T) {
	const want = 200 * time.Millisecond
	spin := func(d time.Duration) {
		var ts unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
		for from := ts.Nano(); ts.Nano()-from < int64(d); {
			_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
		}
	}
	spun, slept, end := make(chan int), make(chan int), make(chan bool)
	begin := make(chan bool)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		spin(want / 4)
		spun <- unix.Gettid()
		<-begin
		spin(want)
		spun <- 0
		<-end
	}()
	go func() {
		runtime.LockOSThread()
		slept <- unix.Gettid()
		time.Sleep(want)
		slept <- 0
		<-end
	}()
	busy, idle := <-spun, <-slept
	tab := New(os.Getpid())
	begin <- true
	<-spun
	<-slept
	tab.Update()
	close(end)
	seen := 0
	for _, th := range tab.Threads() {
		used := time.Duration(th.CPUUserNS + th.CPUKernelNS)
		switch th.TID {
		case busy:
			seen++
			if used < want*9/10 || used > want*12/10 {
				t.Errorf("the busy thread used %v, not %v", used, want)
			}
		case idle:
			seen++
			if used > want/10 {
				t.Errorf("the idle thread used %v", used)
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d of the two threads were seen", seen)
	}
	tab.Note(Stat{TID: 1 << 30, Own: 7, Comm: "gone", Start: 5, Run: 1000})
	if got := tab.Global(7); got != 1<<30 {
		t.Errorf("thread 7 is %d", got)
	}
	if n := New(1 << 30); len(n.Threads()) != 0 {
		t.Error("a process that is not there has threads")
	}
}
