package probes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rpcprof/toolkit/probes/symbols"
	"github.com/rpcprof/toolkit/rpcprof/profile"
	"github.com/rpcprof/toolkit/rpcprof/segment"
	"github.com/rpcprof/toolkit/rpcprof/threads"
)

// Options of Attach.
type Options struct {
	SLO time.Duration // calls over it are slow; 0: those over their method's p99 are
	// Progress, if set, is called a few times a second.
	Progress func(Progress)
	// NoKernel leaves the kernel's evidence out, as for a user without privileges.
	NoKernel bool
}

// Progress is what is known while a capture runs.
type Progress struct {
	Elapsed  time.Duration
	Calls    int
	InFlight int
	Events   int
}

// maxCalls bounds what is kept of one window: about 200 bytes each.
const maxCalls = 4 << 20

// pollEvery is how often finished calls are read. The smallest ring has room for
// 1,024 of one P, so it keeps up with 25,000 a second of each.
const pollEvery = 40 * time.Millisecond

// Capture is one look at one process.
type Capture struct {
	pid      int
	opts     Options
	comm     string
	pidfd    int
	services []*service // none when the process embeds nothing
	kern     *kernel
	samp     *sampler
	proc     *symbols.Process
	threads  *threads.Table
	host     map[int]cpuTimes
	self     time.Duration
	limits   []string

	start   int64
	calls   int // records of all services
	watched map[uint64]bool
	lost    uint64
}

// Attach begins to look at a process. The errors it returns are complete
// sentences: the process is not there, or may not be looked into.
func Attach(pid int, o Options) (*Capture, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("no process has the id %d", pid)
	}
	if err != nil {
		fd = -1
	}
	c := &Capture{
		pid: pid, opts: o, pidfd: fd, comm: readComm(pid),
		watched: map[uint64]bool{},
	}
	if err := c.openSegments(); err != nil {
		c.Close()
		return nil, err
	}
	if p, err := symbols.Open(pid); err == nil {
		c.proc = p
	} else {
		c.limit("code lines are missing: %v", err)
	}
	c.readHeaders()
	switch {
	case o.NoKernel:
		err = ErrPrivilege
	case inPIDNamespace():
		err = ErrNamespace
	default:
		c.kern, err = attachKernel(pid, c.services)
	}
	switch {
	case errors.Is(err, ErrPrivilege):
		c.limit("no off-CPU, run-queue, interrupt and socket evidence, so running is not told from waiting for a CPU: root, or CAP_BPF and CAP_PERFMON, would add it")
	case err != nil:
		c.limit("no kernel evidence: %v", err)
	}
	if c.kern != nil && len(c.kern.missed) > 0 {
		c.limit("this kernel has no tracepoint %s", strings.Join(c.kern.missed, ", "))
	}
	if c.kern != nil && c.kern.beyond > 0 {
		c.limit("the process has %d profilers more than the kernel's evidence can follow; their calls have none", c.kern.beyond)
	}
	c.sample()
	for _, s := range c.services {
		if err := s.seg.Skip(); err != nil {
			c.Close()
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
	}
	c.threads = threads.New(pid)
	c.host = readHost()
	c.self = selfCPU()
	c.start = monotonic()
	return c, nil
}

func (c *Capture) limit(format string, args ...any) {
	c.limits = append(c.limits, fmt.Sprintf(format, args...))
}

func (c *Capture) openSegments() error {
	files, err := segment.Find(c.pid)
	switch {
	case errors.Is(err, segment.ErrNoProcess):
		return fmt.Errorf("no process has the id %d", c.pid)
	case errors.Is(err, segment.ErrRefused):
		return fmt.Errorf("process %d is not yours to look into: run as its user or as root", c.pid)
	case err != nil:
		c.limit("a segment of the target cannot be used: %v", err)
	}
	files = slices.DeleteFunc(files, func(f *segment.File) bool {
		h := f.Header()
		if h.StartNS != 0 {
			return false
		}
		c.limit("a profiler of the process is only being made and is left out; attach again")
		_ = f.Close()
		return true
	})
	if len(files) == 0 {
		c.limit("the process does not embed rpcprof, so no calls are known: threads and interrupts only")
		return nil
	}
	again, err := segment.Find(c.pid)
	c.openServices(files, again)
	if len(again) == 0 {
		return fmt.Errorf("process %d ended while attaching: %v", c.pid, err)
	}
	return nil
}

// readHeaders reports what the segments say is missing, and what in them this
// version does not know.
func (c *Capture) readHeaders() {
	for _, s := range c.services {
		who := "the library in the target"
		if len(c.services) > 1 {
			who = fmt.Sprintf("the profiler of %q", s.name())
		}
		if d := s.header.DegradedString(); d != "" {
			c.limit("%s says: %s", who, printable(d))
		}
		if skipped := s.seg.Skipped(); len(skipped) > 0 {
			c.limit("%s is newer than this command, which skips its %s; update the command", who, printable(strings.Join(skipped, ", ")))
		}
	}
}

// sample starts looking at the goroutines, of all services that have some.
func (c *Capture) sample() {
	var of []*service
	for _, s := range c.services {
		switch {
		case s.onThreads():
		case s.forSlots == nil:
			c.limit("no goroutine waits of %q: its segment was closed while attaching", s.name())
		default:
			of = append(of, s)
		}
	}
	if len(of) == 0 {
		return
	}
	var err error
	switch c.samp, err = startSampler(c.pid, of); {
	case errors.Is(err, unix.EPERM):
		c.limit("no goroutine waits: reading the target's memory is refused; root or CAP_SYS_PTRACE would add them")
	case err != nil:
		c.limit("no goroutine waits: %v", err)
	}
}

// Run captures until the context is done or the target ends, which it reports.
func (c *Capture) Run(ctx context.Context) (ended bool) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
		if n%3 == 0 {
			c.pollConns()
		}
		c.pollRecords()
		if n%25 == 0 {
			c.threads.Update()
		}
		if c.opts.Progress != nil && n%6 == 0 {
			c.opts.Progress(c.progress())
		}
		if c.targetEnded() {
			return true
		}
	}
}

func (c *Capture) targetEnded() bool {
	if c.pidfd < 0 {
		return unix.Kill(c.pid, 0) == unix.ESRCH
	}
	fds := []unix.PollFd{{Fd: int32(c.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

func (c *Capture) pollRecords() {
	for _, s := range c.services {
		if s.seg == nil {
			continue
		}
		before := len(s.records)
		var err error
		s.records, err = s.seg.Records(s.records)
		if over := c.calls + len(s.records) - before - maxCalls; over > 0 {
			c.lost += uint64(over)
			s.records = s.records[:len(s.records)-over]
		}
		c.calls += len(s.records) - before
		if err != nil {
			c.limit("calls of %q after %v are missing: %v", s.name(), time.Duration(monotonic()-c.start).Round(time.Millisecond), err)
			c.lost += s.seg.Overwritten + s.seg.Torn
			_ = s.seg.Close()
			s.seg = nil
		}
	}
}

func (c *Capture) pollConns() {
	for _, s := range c.services {
		if s.seg != nil {
			c.pollService(s)
		}
	}
}

func (c *Capture) pollService(s *service) {
	conns, err := s.seg.Conns()
	if err != nil {
		return
	}
	for _, cn := range conns {
		s.conns[cn.ID] = cn
		if cn.Cookie != 0 && c.kern != nil && !c.watched[cn.Cookie] {
			c.watched[cn.Cookie] = true
			if err := c.kern.watch(cn.Cookie); err != nil {
				c.lost++
			}
		}
	}
	slots, err := s.seg.Slots()
	if err != nil {
		return
	}
	s.noteRoles(slots)
}

func (s *service) noteRoles(slots []segment.SlotState) {
	for _, sl := range slots {
		if sl.Kind != segment.KindCall {
			s.roles[sl.Index] = profile.Role{Slot: sl.Index, Kind: sl.Kind, Conn: sl.Conn, Queue: sl.Queue, TID: sl.TID}
		}
	}
}

func (c *Capture) progress() Progress {
	p := Progress{Elapsed: time.Duration(monotonic() - c.start), Calls: c.calls}
	if c.kern != nil {
		c.kern.mu.Lock()
		p.Events = len(c.kern.events)
		c.kern.mu.Unlock()
	}
	for _, s := range c.services {
		if s.seg == nil {
			continue
		}
		slots, _ := s.seg.Slots()
		for _, sl := range slots {
			if sl.Kind == segment.KindCall {
				p.InFlight++
			}
		}
	}
	return p
}

// Profile ends the capture and joins what it saw.
func (c *Capture) Profile() *profile.Profile {
	c.pollConns()
	c.pollRecords()
	end := monotonic()
	profilerCPU := selfCPU() - c.self
	inFlight := make([][]segment.SlotState, len(c.services))
	for i, s := range c.services {
		if s.seg != nil {
			inFlight[i], _ = s.seg.Slots()
		}
	}
	c.threads.Update()
	host := hostShares(c.host, readHost())
	var bpfNS uint64
	if c.kern != nil {
		bpfNS = c.kern.runtime()
		c.kern.detach()
		c.kern.collectPending(c.threads.IDs(), end)
	}
	if c.samp != nil {
		c.samp.finish()
		if c.samp.err != nil && !errors.Is(c.samp.err, errTargetGone) {
			c.limit("goroutine waits end early: %v", c.samp.err)
		}
	}
	ev, bound := c.evidence(end, inFlight)
	p := profile.Join(ev, profile.Options{SLONS: int64(c.opts.SLO)})
	p.Host = host
	p.Overhead = profile.Overhead{ProfilerCPUNS: int64(profilerCPU), BPFNS: int64(bpfNS)}
	c.describe(p, ev, bound)
	p.Runtime = c.runtime(p, ev)
	c.account(p, ev)
	p.Limits = append([]string{}, c.limits...) // last: all of these may add to them
	return p
}

// Close ends the capture and gives everything back.
func (c *Capture) Close() {
	if c.samp != nil {
		select {
		case <-c.samp.stop:
		default:
			c.samp.finish()
		}
	}
	if c.kern != nil {
		c.kern.Close()
	}
	for _, s := range c.services {
		s.close()
	}
	if c.proc != nil {
		_ = c.proc.Close()
	}
	if c.pidfd >= 0 {
		_ = unix.Close(c.pidfd)
	}
}

// inPIDNamespace says whether this process sees other process ids than the kernel's
// events bear. The first namespace has a fixed inode (PROC_PID_INIT_INO in the
// kernel's include/linux/proc_ns.h).
func inPIDNamespace() bool {
	link, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && link != "pid:[4026531836]"
}

func readComm(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return printable(strings.TrimSuffix(string(b), "\n"))
}

func selfCPU() time.Duration {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &ru) != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// Cost gives what the capture takes of the machine's CPUs so far, as shares: the
// profiler itself and the BPF programs.
func (c *Capture) Cost() (profiler, bpf float64) {
	all := float64(monotonic()-c.start) * float64(max(1, len(c.host)))
	if c.kern != nil {
		bpf = float64(c.kern.runtime()) / all
	}
	return float64(selfCPU()-c.self) / all, bpf
}
