package probes

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rpcprof/toolkit/probes/bpf"
	"github.com/rpcprof/toolkit/rpcprof/profile"
	"github.com/rpcprof/toolkit/rpcprof/threads"
)

// ended notes what a thread had used when it ended.
func ended(t *threads.Table, e *bpf.ProgramsEvent) {
	s := threads.Stat{
		TID: int(e.Tid), Own: e.State, Comm: comm(e.Who), Start: e.Start / uint64(threads.Tick),
		Run: int64(e.Call), Runq: int64(e.Received), Vol: int64(e.Slot), Invol: int64(e.Conn),
	}
	// The kernel's own sums are of ticks; /proc shows them in proportion to the exact
	// run time (cputime_adjust, kernel/sched/cputime.c), and so are they here.
	s.User = s.Run
	if all := e.Wake + e.End; all > 0 {
		s.User = int64(float64(s.Run) * float64(e.Wake) / float64(all))
		s.Sys = s.Run - s.User
	}
	t.Note(s)
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

func sharesOf(t *threads.Table) userShares {
	out := userShares{0: 1}
	var user, all int64
	for _, th := range t.Threads() {
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

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return '?'
		}
		return r
	}, s)
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
