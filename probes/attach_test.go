package probes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/rpcprof/toolkit/rpcprof/profile"
)

// needKernel skips a test where the kernel's evidence cannot be had, except where
// that must not happen.
func needKernel(t *testing.T) {
	t.Helper()
	k, err := attachKernel(os.Getpid(), nil)
	if err == nil {
		k.Close()
		return
	}
	if os.Getenv("RPCPROF_REQUIRE_PROBES") != "" {
		t.Fatalf("probes are required here: %v", err)
	}
	var ke *KernelError
	if errors.Is(err, ErrPrivilege) || errors.As(err, &ke) {
		t.Skip(err)
	}
	t.Fatal(err)
}

// observe looks at a process for a while.
func observe(t *testing.T, pid int, d time.Duration, o Options) *profile.Profile {
	t.Helper()
	c, err := Attach(pid, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	c.Run(ctx)
	p := c.Profile()
	checkSums(t, p)
	return p
}

func checkSums(t *testing.T, p *profile.Profile) {
	t.Helper()
	for _, m := range p.Methods {
		for _, s := range []profile.Set{m.Typical, m.Slow} {
			var wall int64
			for name, st := range s.Stages {
				var sum int64
				for c, ns := range st.Causes {
					if ns < 0 {
						t.Errorf("%s %s %s is %d ns", m.Method, name, c, ns)
					}
					sum += ns
				}
				if sum != st.WallNS {
					t.Errorf("%s %s: causes add up to %d of %d ns", m.Method, name, sum, st.WallNS)
				}
				wall += st.WallNS
			}
			if wall != s.WallNS {
				t.Errorf("%s: stages add up to %d of %d ns", m.Method, wall, s.WallNS)
			}
		}
	}
}

// perCall gives a cause's mean per typical call.
func perCall(t *testing.T, p *profile.Profile, stage string, cause profile.Cause) time.Duration {
	t.Helper()
	if len(p.Methods) != 1 || p.Methods[0].Typical.Calls == 0 {
		t.Fatalf("no calls were seen: %+v, limits %q", p.Methods, p.Limits)
	}
	s := p.Methods[0].Typical
	return time.Duration(s.Stages[stage].Causes[string(cause)] / int64(s.Calls))
}

func detail(p *profile.Profile, stage string, cause profile.Cause) profile.Detail {
	for _, d := range p.Methods[0].Typical.Details {
		if d.Stage == stage && d.Cause == cause {
			return d
		}
	}
	return profile.Detail{}
}

func within(got, want time.Duration, tolerance float64) bool {
	return float64(got) >= (1-tolerance)*float64(want) && float64(got) <= (1+tolerance)*float64(want)
}

// A handler asleep in the kernel is block.sleep, for as long as it sleeps.
func TestKernelSleep(t *testing.T) {
	needKernel(t)
	p := observe(t, start(t, "nanosleep").Process.Pid, time.Second, Options{})
	if got := perCall(t, p, "handler", profile.BlockSleep); !within(got, pause, 0.15) {
		t.Errorf("block.sleep is %v a call, injected %v: %v", got, pause, p.Methods[0].Typical.Stages)
	}
	if d := detail(p, "handler", profile.BlockSleep); !strings.HasPrefix(d.Location, "target_test.go:") {
		t.Errorf("location is %q, stack %v", d.Location, d.Stack)
	}
}

// A handler in time.Sleep is go.sleep: no kernel event tells of it.
func TestGoSleep(t *testing.T) {
	needKernel(t)
	p := observe(t, start(t, "gosleep").Process.Pid, time.Second, Options{})
	if got := perCall(t, p, "handler", profile.GoSleep); !within(got, pause, 0.25) {
		t.Errorf("go.sleep is %v a call, injected %v: %v", got, pause, p.Methods[0].Typical.Stages)
	}
}

// A handler that waits for a mutex is go.lock at the line that locks, also without
// any privilege.
func TestGoLock(t *testing.T) {
	want := "target_test.go:" + lineOf(t, "mu.Lock() // the line that calls wait on")
	for _, o := range []Options{{}, {NoKernel: true}} {
		t.Run(fmt.Sprintf("without kernel %v", o.NoKernel), func(t *testing.T) {
			if !o.NoKernel {
				needKernel(t)
			}
			p := observe(t, start(t, "golock").Process.Pid, time.Second, o)
			// Of four workers one holds the lock and three wait.
			lock, sleep := perCall(t, p, "handler", profile.GoLock), perCall(t, p, "handler", profile.GoSleep)
			if ratio := float64(lock) / float64(lock+sleep); ratio < 0.6 || ratio > 0.9 {
				t.Errorf("go.lock %v and go.sleep %v, want about 3 to 1", lock, sleep)
			}
			if d := detail(p, "handler", profile.GoLock); d.Location != want {
				t.Errorf("location is %q, want %q", d.Location, want)
			}
		})
	}
}

// A handler that shares its CPU with another process is runq, names that process,
// and the amount is what the scheduler itself counts.
func TestRunQueue(t *testing.T) {
	needKernel(t)
	target := start(t, "spin")
	start(t, "spinner")
	p := observe(t, target.Process.Pid, 2*time.Second, Options{})
	m := p.Methods[0]
	var ran, waited, counted int64
	for _, s := range []profile.Set{m.Typical, m.Slow} {
		ran += s.WallNS
		waited += s.Stages["handler"].Causes[string(profile.RunQueue)]
	}
	if share := float64(waited) / float64(ran); share < 0.3 || share > 0.7 {
		t.Errorf("%.0f %% of the calls is run queue, want about half", 100*share)
	}
	for _, th := range p.Threads {
		counted += th.RunqNS
	}
	window := p.Window.EndNS - p.Window.StartNS
	if share := float64(counted) / float64(window); share < 0.3 {
		t.Errorf("the scheduler itself counts %.0f %% run queue", 100*share)
	}
	if d := detail(p, "handler", profile.RunQueue); d.Culprit != "spinner" {
		t.Errorf("culprit is %q, want the spinner", d.Culprit)
	}
}

// Without the kernel's evidence a goroutine that is running may as well wait for a CPU:
// that is unknown, and nobody's fault.
func TestRunningWithoutKernel(t *testing.T) {
	target := start(t, "spin")
	start(t, "spinner")
	p := observe(t, target.Process.Pid, time.Second, Options{NoKernel: true})
	for c := range p.Methods[0].Slow.Stages["handler"].Causes {
		if c == string(profile.CPUUser) || c == string(profile.RunQueue) {
			t.Errorf("handler has %s: %v", c, p.Methods[0].Slow.Stages["handler"])
		}
	}
}

// An fsync that blocks is block.disk.
func TestDisk(t *testing.T) {
	needKernel(t)
	dir := t.TempDir()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Type == unix.TMPFS_MAGIC {
		t.Skip("no disk behind the directory for temporary files")
	}
	p := observe(t, start(t, "fsync", "RPCPROF_TEST_DIR="+dir).Process.Pid, time.Second, Options{})
	if disk := perCall(t, p, "handler", profile.BlockDisk); disk < time.Duration(p.Methods[0].P50NS)/5 {
		t.Errorf("block.disk is %v of %v: %v", disk, time.Duration(p.Methods[0].P50NS), p.Methods[0].Typical.Stages)
	}
}

// A request that lies in the socket before it is read is in the recv stage.
func TestArrive(t *testing.T) {
	needKernel(t)
	p := observe(t, start(t, "lateread").Process.Pid, time.Second, Options{})
	s := p.Methods[0].Typical
	if s.Calls == 0 {
		t.Fatal("no calls")
	}
	if got := time.Duration(s.Stages["recv"].WallNS / int64(s.Calls)); !within(got, pause, 0.25) {
		t.Errorf("recv is %v a call, injected %v (limits %q)", got, pause, p.Limits)
	}
}

// Timer interrupts are counted as the kernel counts them: no fewer than between two
// readings of /proc inside the capture, no more than between two around it.
func TestInterruptTotals(t *testing.T) {
	needKernel(t)
	target := start(t, "spin")
	before := localTimer(t)
	c, err := Attach(target.Process.Pid, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := localTimer(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c.Run(ctx)
	least := localTimer(t) - began
	p := c.Profile()
	most := localTimer(t) - before
	var got int64
	for _, i := range p.Interrupts {
		if i.Name == "local_timer" {
			got += i.Count
		}
	}
	if got < least-2 || got > most || got == 0 {
		t.Errorf("%d timer interrupts, /proc/interrupts has between %d and %d", got, least, most)
	}
}

func localTimer(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/interrupts")
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) < 1+runtime.NumCPU() || f[0] != "LOC:" {
			continue
		}
		for _, s := range f[1 : 1+runtime.NumCPU()] {
			var n int64
			_, _ = fmt.Sscan(s, &n)
			sum += n
		}
	}
	return sum
}

// Refusals are one clear line each, and a target that ends still has its report.
func TestTargets(t *testing.T) {
	if _, err := Attach(1<<22+1, Options{}); err == nil || !strings.Contains(err.Error(), "no process has the id") {
		t.Errorf("a process that is not there: %v", err)
	}
	t.Run("embeds nothing", func(t *testing.T) {
		p := observe(t, start(t, "idle").Process.Pid, 200*time.Millisecond, Options{})
		if p.Targets[0].Embedded || len(p.Threads) == 0 || !strings.Contains(strings.Join(p.Limits, " "), "does not embed rpcprof") {
			t.Errorf("targets %+v, %d threads, limits %q", p.Targets, len(p.Threads), p.Limits)
		}
	})
	t.Run("ends meanwhile", func(t *testing.T) {
		cmd := start(t, "gosleep")
		c, err := Attach(cmd.Process.Pid, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		time.AfterFunc(400*time.Millisecond, func() { _ = cmd.Process.Kill() })
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if !c.Run(ctx) {
			t.Error("the end of the target went unnoticed")
		}
		if p := c.Profile(); len(p.Methods) != 1 || p.Methods[0].Calls == 0 {
			t.Errorf("methods are %+v", p.Methods)
		}
	})
}

// programs gives the ids of a capture's BPF programs.
func programs(t *testing.T, k *kernel) []ebpf.ProgramID {
	t.Helper()
	var out []ebpf.ProgramID
	for _, p := range k.coll.Programs {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		if id, ok := info.ID(); ok {
			out = append(out, id)
		}
	}
	if len(out) == 0 {
		t.Fatal("no programs")
	}
	return out
}

// gone waits until programs are no longer in the kernel, which frees them after a
// grace period.
func gone(ids []ebpf.ProgramID) error {
	var err error
	for range 500 {
		err = nil
		for _, id := range ids {
			if p, e := ebpf.NewProgramFromID(id); e == nil {
				_ = p.Close()
				err = fmt.Errorf("program %d is still there", id)
			}
		}
		if err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// Nothing of ours is left in the kernel when a capture is closed.
func TestNothingLeft(t *testing.T) {
	needKernel(t)
	c, err := Attach(start(t, "gosleep").Process.Pid, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ids := programs(t, c.kern)
	c.Close()
	if err := gone(ids); err != nil {
		t.Error(err)
	}
}

// Nor when the profiler is killed in the middle: and the target goes on.
func TestKilled(t *testing.T) {
	needKernel(t)
	target := start(t, "gosleep")
	profiler := start(t, "attacher", fmt.Sprintf("RPCPROF_TEST_PID=%d", target.Process.Pid))
	var ids []ebpf.ProgramID
	var id ebpf.ProgramID
	for id = 0; ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			break
		}
		id = next
		if p, err := ebpf.NewProgramFromID(id); err == nil {
			if info, err := p.Info(); err == nil && info.Name == "on_data_ready" {
				ids = append(ids, id)
			}
			_ = p.Close()
		}
	}
	if len(ids) == 0 {
		t.Fatal("the profiler has no programs in the kernel")
	}
	_ = profiler.Process.Kill()
	_ = profiler.Wait()
	// Another test's profiler may have been among them; it ends as well.
	if err := gone(ids); err != nil {
		t.Error(err)
	}
	if p := observe(t, target.Process.Pid, 300*time.Millisecond, Options{}); len(p.Methods) == 0 || p.Methods[0].Calls == 0 {
		t.Error("the target makes no calls any more")
	}
}

func lineOf(t *testing.T, text string) string {
	t.Helper()
	return lineIn(t, "target_test.go", text)
}

func lineIn(t *testing.T, file, text string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range strings.Split(string(b), "\n") {
		if strings.Contains(l, text) && !strings.Contains(l, "lineOf") {
			return fmt.Sprint(i + 1)
		}
	}
	t.Fatalf("no line has %q", text)
	return ""
}
