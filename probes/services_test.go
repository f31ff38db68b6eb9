package probes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rpcprof/toolkit/rpcprof/profile"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// methodOf gives one method's row.
func methodOf(t *testing.T, p *profile.Profile, name string) *profile.Method {
	t.Helper()
	for i := range p.Methods {
		if p.Methods[i].Method == name {
			return &p.Methods[i]
		}
	}
	var names []string
	for _, m := range p.Methods {
		names = append(names, m.Method)
	}
	t.Fatalf("no method %q among %q, limits %q", name, names, p.Limits)
	return nil
}

// causeOf gives what typical calls of a method mostly lose to a cause in their handler.
func causeOf(m *profile.Method, cause profile.Cause) time.Duration {
	if m.Typical.Calls == 0 {
		return 0
	}
	return time.Duration(m.Typical.Stages["handler"].Causes[string(cause)] / int64(m.Typical.Calls))
}

// Two profilers of one process are one profile: each call has its own causes, exact
// ones and sampled ones, and rows of different services stay apart.
func TestTwoServices(t *testing.T) {
	needKernel(t)
	c := start(t, "twins", "RPCPROF_TEST_FIRST=orders", "RPCPROF_TEST_SECOND=stock")
	time.Sleep(200 * time.Millisecond) // until the other one serves too
	p := observe(t, c.Process.Pid, time.Second, Options{})
	orders, stock := methodOf(t, p, "orders: target.Target/Call"), methodOf(t, p, "stock: target.Target/Call")
	if got := causeOf(orders, profile.BlockSleep); !within(got, pause, 0.15) {
		t.Errorf("block.sleep of the first is %v a call, injected %v: %v", got, pause, orders.Typical.Stages)
	}
	if got := causeOf(stock, profile.GoSleep); !within(got, 2*pause, 0.25) {
		t.Errorf("go.sleep of the second is %v a call, injected %v: %v", got, 2*pause, stock.Typical.Stages)
	}
	if got := p.Targets[0].Service; got != "orders, stock" && got != "stock, orders" {
		t.Errorf("services are %q", got)
	}
}

// Two profilers of one service have one row a method, in which no call is twice.
func TestTwoProfilersOfOneService(t *testing.T) {
	needKernel(t)
	c := start(t, "twins", "RPCPROF_TEST_FIRST=orders", "RPCPROF_TEST_SECOND=orders", fmt.Sprintf("RPCPROF_TEST_IDLE=%d", maxProfilers-1))
	time.Sleep(200 * time.Millisecond)
	p := observe(t, c.Process.Pid, time.Second, Options{})
	m := methodOf(t, p, "target.Target/Call")
	if len(p.Methods) != 1 || m.Calls < 100 {
		t.Errorf("methods are %+v", p.Methods)
	}
	for _, cause := range []profile.Cause{profile.CPUUser, profile.CPUKernel} {
		if got := causeOf(m, cause); got > pause/10 {
			t.Errorf("%s is %v a call of handlers that sleep, one of them unseen by the kernel: %v", cause, got, m.Typical.Stages)
		}
	}
	seen := map[uint64]bool{}
	for _, s := range p.Slowest {
		if seen[s.Call] {
			t.Errorf("two calls have the id %d", s.Call)
		}
		seen[s.Call] = true
	}
	if want := "1 profilers more than"; !strings.Contains(strings.Join(p.Limits, "\n"), want) {
		t.Errorf("no limit says %q: %q", want, p.Limits)
	}
}

// A call that has a thread of its own is explained whole: by what blocks that thread,
// and else by its running.
func TestThreads(t *testing.T) {
	needKernel(t)
	for handler, want := range map[string]profile.Cause{"sleep": profile.BlockSleep, "futex": profile.BlockLock, "user": profile.CPUUser, "kernel": profile.CPUKernel} {
		t.Run(handler, func(t *testing.T) {
			c := start(t, "threads", "RPCPROF_TEST_HANDLER="+handler)
			p := observe(t, c.Process.Pid, 1500*time.Millisecond, Options{})
			m := methodOf(t, p, "target.Target/Call")
			if got := causeOf(m, want); !within(got, pause, 0.15) {
				t.Errorf("%s is %v a call, injected %v: %v", want, got, pause, m.Typical.Stages)
			}
			if unknown := causeOf(m, profile.Unknown); unknown > pause/50 {
				t.Errorf("%v a call is unknown: %v", unknown, m.Typical.Stages)
			}
			if strings.HasPrefix(string(want), "block.") {
				if d := detailOf(m, want); !strings.Contains(d.Location, "target_test.go:") {
					t.Errorf("location is %q, stack %v", d.Location, d.Stack)
				}
			}
			workers := 0
			for _, th := range p.Threads {
				if th.Role == segment.KindWorker.String() {
					workers++
				}
			}
			if workers != threadWorkers {
				t.Errorf("%d threads are workers, want %d: %+v", workers, threadWorkers, p.Threads)
			}
			if m.CPUPerCallNS != int64(pause) || m.CPUSamples != m.Calls {
				t.Errorf("%d ns of CPU a call, of %d calls", m.CPUPerCallNS, m.CPUSamples)
			}
			if want := `section "newer" of 64 bytes`; !strings.Contains(strings.Join(p.Limits, "\n"), want) {
				t.Errorf("no limit says %q: %q", want, p.Limits)
			}
		})
	}
}

func detailOf(m *profile.Method, cause profile.Cause) profile.Detail {
	for _, d := range m.Typical.Details {
		if d.Stage == "handler" && d.Cause == cause {
			return d
		}
	}
	return profile.Detail{}
}

// Goroutines and threads have their calls side by side in one process.
func TestThreadsBesideGoroutines(t *testing.T) {
	needKernel(t)
	p := observe(t, start(t, "threads", "RPCPROF_TEST_HANDLER=sleep", "RPCPROF_TEST_FIRST=go").Process.Pid, 1500*time.Millisecond, Options{})
	threads, gos := methodOf(t, p, "threads: target.Target/Call"), methodOf(t, p, "go: target.Target/Call")
	if got := causeOf(threads, profile.BlockSleep); !within(got, pause, 0.15) {
		t.Errorf("block.sleep on threads is %v a call, injected %v: %v", got, pause, threads.Typical.Stages)
	}
	if got := causeOf(gos, profile.GoSleep); !within(got, 2*pause, 0.25) {
		t.Errorf("go.sleep of goroutines is %v a call, injected %v: %v", got, 2*pause, gos.Typical.Stages)
	}
}

// In a container a process knows its threads by other ids than the host.
func TestThreadsInNamespace(t *testing.T) {
	needKernel(t)
	if os.Geteuid() != 0 {
		t.Skip("making a PID namespace takes root")
	}
	p := observe(t, start(t, "threads", "RPCPROF_TEST_HANDLER=futex", ownNamespace).Process.Pid, 1500*time.Millisecond, Options{})
	m := methodOf(t, p, "target.Target/Call")
	if got := causeOf(m, profile.BlockLock); !within(got, pause, 0.15) {
		t.Errorf("block.lock is %v a call, injected %v: %v", got, pause, m.Typical.Stages)
	}
	workers := 0
	for _, th := range p.Threads {
		if th.Role == segment.KindWorker.String() && th.Calls > 0 {
			workers++
		}
	}
	if workers != threadWorkers {
		t.Errorf("%d threads are workers, want %d: %+v", workers, threadWorkers, p.Threads)
	}
}

// What holds up a call made within another holds up both.
func TestNestedThreads(t *testing.T) {
	needKernel(t)
	p := observe(t, start(t, "threads", "RPCPROF_TEST_HANDLER=nested").Process.Pid, 1500*time.Millisecond, Options{})
	outer, inner := methodOf(t, p, "target.Target/Call"), methodOf(t, p, "target.Target/Inner")
	for _, m := range []*profile.Method{outer, inner} {
		if got := causeOf(m, profile.BlockSleep); !within(got, pause, 0.15) {
			t.Errorf("%s: block.sleep is %v a call, injected %v: %v", m.Method, got, pause, m.Typical.Stages)
		}
	}
	if got := causeOf(outer, profile.CPUUser); !within(got, pause, 0.15) {
		t.Errorf("cpu.user is %v a call, injected %v: %v", got, pause, outer.Typical.Stages)
	}
	if got := causeOf(inner, profile.CPUUser); got > pause/10 {
		t.Errorf("cpu.user of the inner call is %v: %v", got, inner.Typical.Stages)
	}
}

// A call that hangs in the kernel has not been running, though no switch tells so yet.
func TestHangingThread(t *testing.T) {
	needKernel(t)
	if fd, err := unix.PidfdOpen(unix.Gettid(), unix.O_EXCL); err != nil {
		t.Skip("this kernel cannot look up one thread's storage: ", err)
	} else {
		_ = unix.Close(fd)
	}
	cmd := start(t, "threads", "RPCPROF_TEST_HANDLER=hang")
	c, err := Attach(cmd.Process.Pid, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	time.AfterFunc(time.Second, func() { _ = cmd.Process.Signal(unix.SIGUSR1) })
	c.Run(ctx)
	p := c.Profile()
	checkSums(t, p)
	if len(p.InFlight) != threadWorkers {
		t.Fatalf("in flight are %+v", p.InFlight)
	}
	want := "threads_target_test.go:" + lineIn(t, "threads_target_test.go", "// where it hangs")
	for _, f := range p.InFlight {
		if f.Location != want {
			t.Errorf("it hangs at %q, want %s", f.Location, want)
		}
		if f.Goid != 0 || f.TID == 0 {
			t.Errorf("runs on goroutine %d, thread %d", f.Goid, f.TID)
		}
	}
	s := methodOf(t, p, "target.Target/Call").Slow.Stages["handler"]
	var age int64
	for _, f := range p.InFlight {
		age += f.AgeNS
	}
	if lock := s.Causes[string(profile.BlockLock)]; !within(time.Duration(lock), time.Duration(age), 0.1) {
		t.Errorf("block.lock is %v, calls have hung for %v: %v", time.Duration(lock), time.Duration(age), s.Causes)
	}
	if cpu := s.Causes[string(profile.CPUUser)] + s.Causes[string(profile.CPUKernel)]; cpu > age/20 {
		t.Errorf("they ran for %v: %v", time.Duration(cpu), s.Causes)
	}
}

// The CPU time of a thread is what its own clock says, also of one that came and went
// in the window.
func TestThreadUsage(t *testing.T) {
	needKernel(t)
	dir := t.TempDir()
	cmd := start(t, "usage", "RPCPROF_TEST_DIR="+dir)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := Attach(cmd.Process.Pid, Options{Progress: func(Progress) {
		if _, err := os.Stat(filepath.Join(dir, "done")); err == nil {
			cancel()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = cmd.Process.Signal(unix.SIGUSR1)
	c.Run(ctx)
	p := c.Profile()
	got := map[string]time.Duration{}
	for _, th := range p.Threads {
		got[th.Comm] += time.Duration(th.CPUUserNS + th.CPUKernelNS)
	}
	if !within(got["stays"], used, 0.1) || !within(got["ends"], used, 0.1) || got["sleeps"] > used/10 {
		t.Errorf("threads have used %v, want %v of CPU time in two and none in the third: %+v", got, used, p.Threads)
	}
	if p.CPU.Top2Share < 0.9 {
		t.Errorf("the busiest two threads have %.2f of the CPU time: %+v", p.CPU.Top2Share, p.Threads)
	}
	if busy := time.Duration(p.CPU.BusyCores * float64(p.Window.EndNS-p.Window.StartNS)); !within(busy, 2*used, 0.15) {
		t.Errorf("%v of CPU time in all, want %v", busy, 2*used)
	}
}
