package probes

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rpcprof/toolkit/probes/bpf"
	"github.com/rpcprof/toolkit/rpcprof/profile"
)

// threadStat is what /proc says of one thread. Its start time tells a thread
// from a later one with the same id.
type threadStat struct {
	tid        int
	own        uint32 // its id as the process itself sees it, in its namespace
	comm       string
	start      uint64 // ticks since boot
	user, sys  int64  // ns, of ticks
	run, runq  int64  // ns
	vol, invol int64
}

type threadKey struct {
	tid   int
	start uint64
}

// threadTable follows the threads of a process over a window. A thread that ends
// in it keeps what it was last seen with; where the kernel tells of its end, what it
// had used then.
type threadTable struct {
	pid         int
	first, last map[threadKey]threadStat
	tids        map[uint32]uint32 // by the id the process itself sees, where that is another one
}

func newThreadTable(pid int) *threadTable {
	t := &threadTable{pid: pid, last: map[threadKey]threadStat{}, tids: map[uint32]uint32{}}
	t.update()
	t.first = maps.Clone(t.last)
	return t
}

// update reads all threads once.
func (t *threadTable) update() {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", t.pid))
	if err != nil {
		return
	}
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		s, ok := readThread(t.pid, tid)
		if ok {
			t.note(s)
		}
	}
}

func (t *threadTable) note(s threadStat) {
	t.last[threadKey{s.tid, s.start}] = s
	if s.own != uint32(s.tid) {
		t.tids[s.own] = uint32(s.tid)
	}
}

// global gives the id under which the kernel's events and /proc here have a thread
// that the process itself calls own: in a container they differ.
func (t *threadTable) global(own uint32) uint32 {
	if tid, ok := t.tids[own]; ok {
		return tid
	}
	return own
}

// ids are those of all threads that were seen.
func (t *threadTable) ids() []int {
	out := make([]int, 0, len(t.last))
	for k := range t.last {
		out = append(out, k.tid)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ended notes what a thread had used when it ended.
func (t *threadTable) ended(e *bpf.ProgramsEvent) {
	s := threadStat{
		tid: int(e.Tid), own: e.State, comm: comm(e.Who), start: e.Start / uint64(tick),
		run: int64(e.Call), runq: int64(e.Received), vol: int64(e.Slot), invol: int64(e.Conn),
	}
	// The kernel's own sums are of ticks; /proc shows them in proportion to the exact
	// run time (cputime_adjust, kernel/sched/cputime.c), and so are they here.
	s.user = s.run
	if all := e.Wake + e.End; all > 0 {
		s.user = int64(float64(s.run) * float64(e.Wake) / float64(all))
		s.sys = s.run - s.user
	}
	t.note(s)
}

// userShares are the parts of their CPU time that threads spent outside the kernel.
type userShares map[uint32]float64

// of gives a thread's, or that of the whole process where the thread was not seen.
func (u userShares) of(tid uint32) float64 {
	if s, ok := u[tid]; ok {
		return s
	}
	return u[0]
}

func (t *threadTable) userShares() userShares {
	out := userShares{0: 1}
	var user, all int64
	for _, th := range t.threads() {
		run := th.CPUUserNS + th.CPUKernelNS
		if run > 0 {
			out[uint32(th.TID)] = float64(th.CPUUserNS) / float64(run)
		}
		user, all = user+th.CPUUserNS, all+run
	}
	if all > 0 {
		out[0] = float64(user) / float64(all)
	}
	return out
}

func readThread(pid, tid int) (threadStat, bool) {
	dir := fmt.Sprintf("/proc/%d/task/%d/", pid, tid)
	b, err := os.ReadFile(dir + "stat")
	if err != nil {
		return threadStat{}, false
	}
	s := threadStat{tid: tid, own: uint32(tid)}
	// The name is in parentheses and may contain anything, so cut at the last one.
	open, shut := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || shut < open {
		return threadStat{}, false
	}
	s.comm = printable(string(b[open+1 : shut]))
	f := strings.Fields(string(b[shut+1:])) // f[0] is field 3 of proc_pid_stat(5)
	if len(f) < 20 {
		return threadStat{}, false
	}
	s.user, _ = strconv.ParseInt(f[11], 10, 64)
	s.sys, _ = strconv.ParseInt(f[12], 10, 64)
	s.user, s.sys = s.user*tick, s.sys*tick
	s.start, _ = strconv.ParseUint(f[19], 10, 64)
	if b, err := os.ReadFile(dir + "schedstat"); err == nil {
		_, _ = fmt.Sscan(string(b), &s.run, &s.runq)
	}
	if b, err := os.ReadFile(dir + "status"); err == nil {
		sc := bufio.NewScanner(bytes.NewReader(b))
		for sc.Scan() {
			k, v, _ := strings.Cut(sc.Text(), ":")
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			switch k {
			case "voluntary_ctxt_switches":
				s.vol = n
			case "nonvoluntary_ctxt_switches":
				s.invol = n
			case "NSpid": // from here inwards, the last is the process's own
				if ids := strings.Fields(v); len(ids) > 0 {
					n, _ := strconv.ParseUint(ids[len(ids)-1], 10, 32)
					s.own = uint32(n)
				}
			}
		}
	}
	return s, true
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}

// tick is the length of a clock tick as /proc counts them; USER_HZ is 100 on
// every architecture Linux supports with Go.
const tick = int64(10_000_000)

// threads gives the differences over the window, busiest first. User and kernel
// time are ticks and so coarse; their sum is set to the exact run time and the
// ticks give the proportion.
func (t *threadTable) threads() []profile.Thread {
	out := []profile.Thread{}
	for k, b := range t.last {
		a := t.first[k] // zero for a thread born in the window
		th := profile.Thread{
			TID: k.tid, Comm: b.comm, RunqNS: b.runq - a.runq,
			Voluntary: b.vol - a.vol, Involuntary: b.invol - a.invol,
		}
		user, sys, run := max(0, b.user-a.user), max(0, b.sys-a.sys), b.run-a.run
		switch {
		case run <= 0:
			th.CPUUserNS, th.CPUKernelNS = user, sys
		case user+sys == 0:
			th.CPUUserNS = run
		default:
			th.CPUUserNS = int64(float64(run) * float64(user) / float64(user+sys))
			th.CPUKernelNS = run - th.CPUUserNS
		}
		out = append(out, th)
	}
	slices.SortFunc(out, func(a, b profile.Thread) int {
		return cmp.Or(cmp.Compare(b.CPUUserNS+b.CPUKernelNS, a.CPUUserNS+a.CPUKernelNS), cmp.Compare(a.TID, b.TID))
	})
	return out
}

// cpuTimes are the ticks of one CPU in /proc/stat, by column.
type cpuTimes [10]int64

func readHost() map[int]cpuTimes {
	out := map[int]cpuTimes{}
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return out
	}
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) < 9 || !strings.HasPrefix(f[0], "cpu") || f[0] == "cpu" {
			continue
		}
		n, err := strconv.Atoi(f[0][3:])
		if err != nil {
			continue
		}
		var t cpuTimes
		for i := range min(len(t), len(f)-1) {
			t[i], _ = strconv.ParseInt(f[i+1], 10, 64)
		}
		out[n] = t
	}
	return out
}

// hostShares gives busy and steal as shares of the time between two readings.
func hostShares(a, b map[int]cpuTimes) profile.Host {
	const idle, iowait, steal = 3, 4, 7 // columns of proc_stat(5)
	h := profile.Host{CPUs: []profile.HostCPU{}}
	for n, tb := range b {
		ta := a[n]
		var all int64
		for i := range 8 { // guest time is in user time already
			all += tb[i] - ta[i]
		}
		if all <= 0 {
			continue
		}
		d := func(i int) float64 { return float64(tb[i]-ta[i]) / float64(all) }
		h.CPUs = append(h.CPUs, profile.HostCPU{CPU: n, Busy: 1 - d(idle) - d(iowait) - d(steal), Steal: d(steal)})
	}
	slices.SortFunc(h.CPUs, func(a, b profile.HostCPU) int { return a.CPU - b.CPU })
	return h
}
