// Package threads follows the threads of a process through /proc over a window: the
// CPU time of each, its waits for a CPU and its switches. It needs no privilege, for
// one's own process or one of the same user, and finds nothing where there is no /proc.
// A Table is for one goroutine.
package threads

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

	"github.com/rpcprof/toolkit/rpcprof/profile"
)

// Stat is what /proc says of one thread. Its start time tells a thread
// from a later one with the same id.
type Stat struct {
	TID        int
	Own        uint32 // its id as the process itself sees it, in its namespace
	Comm       string
	Start      uint64 // ticks since boot
	User, Sys  int64  // ns, of ticks
	Run, Runq  int64  // ns
	Vol, Invol int64
}

type key struct {
	tid   int
	start uint64
}

// Table follows the threads of a process over a window. A thread that ends
// in it keeps what it was last seen with; where the kernel tells of its end, what it
// had used then.
type Table struct {
	pid         int
	first, last map[key]Stat
	tids        map[uint32]uint32 // by the id the process itself sees, where that is another one
}

// New begins a window: what the threads have used until now does not count.
func New(pid int) *Table {
	t := &Table{pid: pid, last: map[key]Stat{}, tids: map[uint32]uint32{}}
	t.Update()
	t.first = maps.Clone(t.last)
	return t
}

// Update reads all threads once.
func (t *Table) Update() {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", t.pid))
	if err != nil {
		return
	}
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		s, ok := read(t.pid, tid)
		if ok {
			t.Note(s)
		}
	}
}

// Note takes over what is known of a thread from elsewhere, such as from its end.
func (t *Table) Note(s Stat) {
	t.last[key{s.TID, s.Start}] = s
	if s.Own != uint32(s.TID) {
		t.tids[s.Own] = uint32(s.TID)
	}
}

// Global gives the id under which the kernel's events and /proc here have a thread
// that the process itself calls own: in a container they differ.
func (t *Table) Global(own uint32) uint32 {
	if tid, ok := t.tids[own]; ok {
		return tid
	}
	return own
}

// IDs are those of all threads that were seen.
func (t *Table) IDs() []int {
	out := make([]int, 0, len(t.last))
	for k := range t.last {
		out = append(out, k.tid)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func read(pid, tid int) (Stat, bool) {
	dir := fmt.Sprintf("/proc/%d/task/%d/", pid, tid)
	b, err := os.ReadFile(dir + "stat")
	if err != nil {
		return Stat{}, false
	}
	s := Stat{TID: tid, Own: uint32(tid)}
	// The name is in parentheses and may contain anything, so cut at the last one.
	open, shut := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || shut < open {
		return Stat{}, false
	}
	s.Comm = printable(string(b[open+1 : shut]))
	f := strings.Fields(string(b[shut+1:])) // f[0] is field 3 of proc_pid_stat(5)
	if len(f) < 20 {
		return Stat{}, false
	}
	s.User, _ = strconv.ParseInt(f[11], 10, 64)
	s.Sys, _ = strconv.ParseInt(f[12], 10, 64)
	s.User, s.Sys = s.User*Tick, s.Sys*Tick
	s.Start, _ = strconv.ParseUint(f[19], 10, 64)
	if b, err := os.ReadFile(dir + "schedstat"); err == nil {
		_, _ = fmt.Sscan(string(b), &s.Run, &s.Runq)
	}
	if b, err := os.ReadFile(dir + "status"); err == nil {
		sc := bufio.NewScanner(bytes.NewReader(b))
		for sc.Scan() {
			k, v, _ := strings.Cut(sc.Text(), ":")
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			switch k {
			case "voluntary_ctxt_switches":
				s.Vol = n
			case "nonvoluntary_ctxt_switches":
				s.Invol = n
			case "NSpid": // from here inwards, the last is the process's own
				if ids := strings.Fields(v); len(ids) > 0 {
					n, _ := strconv.ParseUint(ids[len(ids)-1], 10, 32)
					s.Own = uint32(n)
				}
			}
		}
	}
	return s, true
}

// Tick is the length of a clock tick as /proc counts them; USER_HZ is 100 on
// every architecture Linux supports with Go.
const Tick = int64(10_000_000)

// Threads gives the differences over the window, busiest first. User and kernel
// time are ticks and so coarse; their sum is set to the exact run time and the
// ticks give the proportion.
func (t *Table) Threads() []profile.Thread {
	out := []profile.Thread{}
	for k, b := range t.last {
		a := t.first[k] // zero for a thread born in the window
		th := profile.Thread{
			TID: k.tid, Comm: b.Comm, RunqNS: b.Runq - a.Runq,
			Voluntary: b.Vol - a.Vol, Involuntary: b.Invol - a.Invol,
		}
		user, sys, run := max(0, b.User-a.User), max(0, b.Sys-a.Sys), b.Run-a.Run
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

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}
