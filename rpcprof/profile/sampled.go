package profile

import (
	"cmp"
	"slices"
	"sort"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// hit is a sample charged to one stage of one call.
type hit struct {
	call  int // into evidence.calls
	stage string
	cause Cause
	stack int32
}

// charge finds the calls and stages each sample speaks for. Samples of instants
// that are explained exactly are left out: they divide the rest.
func (x *evidence) charge() []hit {
	var out []hit
	add := func(i int, at int64, from segment.Stage, cause Cause, stack int32) {
		j := &x.calls[i]
		for _, s := range j.spans {
			if at >= s.start && at < s.end && (from == segment.Stages || s.from == from) {
				// Where the sampler itself has displaced the thread, the goroutine is still
				// found as it was just before: that counts, or a sample could never find
				// running what shares the sampler's CPU.
				p := j.covered(at)
				if p == nil || p.own && (cause == CPUUser || cause == CPUKernel) {
					out = append(out, hit{i, s.stage, cause, stack})
				}
				return
			}
		}
	}
	by := x.waiting()
	for _, s := range x.Samples {
		if s.Call != 0 {
			if i, ok := x.byID[s.Call]; ok {
				add(i, s.At, segment.Stages, s.Cause, s.Stack)
			}
			continue
		}
		for _, from := range [...]segment.Stage{segment.StageRecv, segment.StageQueue, segment.StageEncode, segment.StageWrite} {
			cause, ok := roleCause(s, from)
			if !ok {
				continue
			}
			by[waitKey{s.Slot, from}].each(s.At, func(i int) { add(i, s.At, from, cause, s.Stack) })
		}
	}
	return out
}

// roleCause says what it means for the calls in a stage that the goroutine they
// wait for was found so.
func roleCause(s Sample, from segment.Stage) (Cause, bool) {
	if s.Cause == GoSched || s.Cause == CPUUser || s.Cause == CPUKernel || s.Cause == GoGC {
		return s.Cause, true
	}
	switch {
	case s.Kind == segment.KindReader && from == segment.StageRecv && s.Cause == GoNet,
		s.Kind == segment.KindWriter && from == segment.StageEncode && (s.Cause == GoChan || s.Cause == GoLock),
		s.Kind == segment.KindWorker && from == segment.StageQueue && (s.Cause == GoChan || s.Cause == GoLock):
		// It is parked, yet what it waits for is there already: it is about to be
		// made runnable. The design calls that go.sched.
		return GoSched, true
	case s.Kind == segment.KindWriter && from == segment.StageWrite && s.Cause == GoNet:
		return s.Cause, true // the socket takes no more
	}
	return s.Cause, false
}

type waitKey struct {
	slot uint32
	from segment.Stage
}

// waiters are the calls that wait for one role in one stage, by the stage's end.
type waiters struct {
	calls      []int
	start, end []int64
	longest    int64
}

func (w *waiters) each(t int64, f func(call int)) {
	if w == nil {
		return
	}
	i := sort.Search(len(w.end), func(i int) bool { return w.end[i] > t })
	for ; i < len(w.end) && w.end[i] <= t+w.longest; i++ {
		if w.start[i] <= t {
			f(w.calls[i])
		}
	}
}

// waiting lists, for each role, the calls that wait for it: for a reader those in
// recv, for a worker those in queue that it will take, for a writer those in
// encode and write.
func (x *evidence) waiting() map[waitKey]*waiters {
	type row struct {
		call       int
		start, end int64
	}
	rows := map[waitKey][]row{}
	for i := range x.calls {
		j := &x.calls[i]
		if j.Side != segment.Server {
			continue
		}
		for _, s := range j.spans {
			var slot uint32
			switch s.from {
			case segment.StageRecv:
				slot = x.reader[j.Conn]
			case segment.StageQueue:
				slot = j.Worker
			case segment.StageEncode, segment.StageWrite:
				slot = x.writer[j.Conn]
			}
			if slot != 0 && s.end > s.start {
				k := waitKey{slot, s.from}
				rows[k] = append(rows[k], row{i, s.start, s.end})
			}
		}
	}
	out := make(map[waitKey]*waiters, len(rows))
	for k, rs := range rows {
		slices.SortFunc(rs, func(a, b row) int { return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.call, b.call)) })
		w := &waiters{}
		for _, r := range rs {
			w.calls = append(w.calls, r.call)
			w.start = append(w.start, r.start)
			w.end = append(w.end, r.end)
			w.longest = max(w.longest, r.end-r.start)
		}
		out[k] = w
	}
	return out
}
