package profile

import (
	"cmp"
	"slices"
	"sort"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// part is a piece of a call's time that is known exactly.
type part struct {
	start, end int64
	cause      Cause
	culprit    string
	stack      int32
	rank       int
	own        bool // the profiler's doing
}

// rank resolves overlaps: what runs on top of the rest comes first. A lower rank wins.
func rank(c Cause) int {
	switch c {
	case IRQ:
		return 0
	case SoftIRQ:
		return 1
	case RunQueue:
		return 2
	case Behind:
		return 4
	default:
		return 3
	}
}

// timeline is a list of intervals of one owner that can be asked for a range.
type timeline struct {
	ivs    []Interval
	maxLen int64
	sorted bool
}

func (t *timeline) add(iv Interval) {
	t.ivs = append(t.ivs, iv)
	t.maxLen = max(t.maxLen, iv.End-iv.Start)
	t.sorted = false
}

// each calls f with each interval that overlaps [a, b).
func (t *timeline) each(a, b int64, f func(*Interval)) {
	if t == nil || a >= b {
		return
	}
	if !t.sorted {
		slices.SortFunc(t.ivs, func(x, y Interval) int { return cmp.Compare(x.Start, y.Start) })
		t.sorted = true
	}
	i := sort.Search(len(t.ivs), func(i int) bool { return t.ivs[i].Start >= a-t.maxLen })
	for ; i < len(t.ivs) && t.ivs[i].Start < b; i++ {
		if t.ivs[i].End > a {
			f(&t.ivs[i])
		}
	}
}

// evidence is Evidence arranged for looking up.
type evidence struct {
	*Evidence
	calls   []joined
	byID    map[uint64]int
	direct  map[uint64]*timeline // by call
	roles   map[uint32]*timeline // by role slot
	process timeline             // threads that ran no call and waited for a CPU
	reader  map[uint32]uint32    // connection to its reader's slot
	writer  map[uint32]uint32
	holds   map[uint32]*timeline // by role slot: the calls it ran; Interval.Call says which
	workers map[uint32][]uint32  // queue to its workers' slots
	writes  map[uint32]*timeline // connection to its writes
	parts   map[uint64][]insideOf
	most    map[uint32]int // queue to the most workers a call has counted
	held    map[heldKey]*held
}

func arrange(e *Evidence) *evidence {
	x := &evidence{
		Evidence: e,
		byID:     make(map[uint64]int, len(e.Calls)),
		direct:   map[uint64]*timeline{}, roles: map[uint32]*timeline{},
		reader: map[uint32]uint32{}, writer: map[uint32]uint32{},
		holds: map[uint32]*timeline{}, workers: map[uint32][]uint32{}, writes: map[uint32]*timeline{},
		most: map[uint32]int{}, held: map[heldKey]*held{},
	}
	for _, r := range e.Roles {
		switch r.Kind {
		case segment.KindReader:
			x.reader[r.Conn] = r.Slot
		case segment.KindWriter:
			x.writer[r.Conn] = r.Slot
		case segment.KindWorker:
			x.workers[r.Queue] = append(x.workers[r.Queue], r.Slot)
		}
	}
	arr := indexArrivals(e.Arrivals)
	x.calls = make([]joined, 0, len(e.Calls))
	for i := range e.Calls {
		c := &e.Calls[i]
		if c.Stamps[0] == 0 || c.Side > segment.Client || int(c.Method) >= len(e.Methods) {
			continue
		}
		j := joined{Call: c, spans: spansOf(c, arr.at(e.Cookies[c.Conn], c.Offset), e.Window.EndNS)}
		if len(j.spans) == 0 {
			continue
		}
		j.wall = j.spans[len(j.spans)-1].end - j.spans[0].start
		j.whole = j.spans[0].start >= e.Window.StartNS
		x.byID[c.ID] = len(x.calls)
		x.calls = append(x.calls, j)
		if c.Side == segment.Server {
			x.hold(c)
		}
	}
	x.parts = x.inside()
	for _, iv := range e.Intervals {
		if iv.End <= iv.Start {
			continue
		}
		switch {
		case iv.Call != 0:
			at(x.direct, iv.Call).add(iv)
		case iv.Kind != segment.KindFree:
			at(x.roles, iv.Slot).add(iv)
		case iv.Cause == RunQueue:
			x.process.add(iv)
		}
	}
	return x
}

func at[K comparable](m map[K]*timeline, k K) *timeline {
	t := m[k]
	if t == nil {
		t = &timeline{}
		m[k] = t
	}
	return t
}

// all gives every interval.
func (t *timeline) all() []Interval {
	if t == nil {
		return nil
	}
	return t.ivs
}

// hold notes when a call had its worker, and when its reply was being written.
func (x *evidence) hold(c *Call) {
	x.most[c.Queue] = max(x.most[c.Queue], int(c.Workers))
	if d := c.Stamps[segment.Dequeue]; d != 0 && c.Worker != 0 {
		end := c.Release
		for s := segment.ServerStamps; end == 0 && s > 0 && c.Outcome != segment.Unfinished; s-- {
			end = c.Stamps[s-1]
		}
		if end == 0 {
			end = x.Window.EndNS
		}
		at(x.holds, c.Worker).add(Interval{Owner: Owner{Call: c.ID}, Start: d, End: end, Cause: Behind, Culprit: x.Methods[c.Method], Stack: -1})
		if c.Queue != 0 && !slices.Contains(x.workers[c.Queue], c.Worker) {
			x.workers[c.Queue] = append(x.workers[c.Queue], c.Worker)
		}
	}
	if w, s := c.Stamps[segment.Write], c.Stamps[segment.Sent]; w != 0 && s > w && c.Conn != 0 {
		at(x.writes, c.Conn).add(Interval{Owner: Owner{Call: c.ID}, Start: w, End: s, Cause: Behind, Culprit: x.Methods[c.Method], Stack: -1})
	}
}

// partition fills the exact parts of every call.
func (x *evidence) partition() {
	var found []part
	for i := range x.calls {
		j := &x.calls[i]
		for _, s := range j.spans {
			found = x.collect(j, s, found[:0])
			j.parts = append(j.parts, resolve(found, s.start, s.end)...)
		}
	}
}

// collect gathers what is known exactly about one stage of a call.
func (x *evidence) collect(j *joined, s span, out []part) []part {
	take := func(iv *Interval) {
		out = append(out, part{max(iv.Start, s.start), min(iv.End, s.end), iv.Cause, iv.Culprit, iv.Stack, rank(iv.Cause), iv.Own})
	}
	// The goroutine that the call waits for needs a thread, and the one that would
	// run it waits for a CPU. It explains what nothing nearer does.
	process := func() {
		n := len(out)
		x.process.each(s.start, s.end, take)
		for i := n; i < len(out); i++ {
			out[i].rank = rank(Behind) + 1
		}
	}
	x.direct[j.ID].each(s.start, s.end, take)
	if j.Side != segment.Server { // roles and queues are the server's
		if s.from == segment.StageWire {
			// Whatever its goroutine is parked on, what it waits for is the reply.
			out = append(out, part{s.start, s.end, GoNet, "", -1, rank(Behind) + 2, false})
		}
		return out
	}
	inline := j.Worker != 0 && j.Worker == x.reader[j.Conn]
	switch s.from {
	case segment.StageRecv:
		if r := x.reader[j.Conn]; r != 0 {
			x.roles[r].each(s.start, s.end, take)
			out = x.heldBy(heldKey{heldReader, r}).within(s.start, s.end, out)
		}
		process()
	case segment.StageQueue:
		if j.Worker != 0 {
			x.roles[j.Worker].each(s.start, s.end, take)
		}
		switch {
		case inline:
			out = x.heldBy(heldKey{heldReader, j.Worker}).within(s.start, s.end, out)
		case j.Queue != 0:
			out = x.heldBy(heldKey{heldQueue, j.Queue}).within(s.start, s.end, out)
		}
		process()
	case segment.StageEncode:
		if w := x.writer[j.Conn]; w != 0 {
			x.roles[w].each(s.start, s.end, take)
		}
		out = x.heldBy(heldKey{heldWriter, j.Conn}).within(s.start, s.end, out)
		process()
	case segment.StageWrite:
		if w := x.writer[j.Conn]; w != 0 {
			x.roles[w].each(s.start, s.end, take)
		}
	}
	return out
}

// heldBy gives when all of a set of workers were held, worked out when first asked for.
func (x *evidence) heldBy(k heldKey) *held {
	h := x.held[k]
	if h != nil {
		return h
	}
	var holds []Interval
	all := 1
	switch k.what {
	case heldQueue:
		ws := x.workers[k.id]
		all = max(len(ws), x.most[k.id])
		for _, w := range ws {
			holds = append(holds, x.holds[w].all()...)
		}
	case heldReader:
		holds = x.holds[k.id].all()
	case heldWriter:
		holds = x.writes[k.id].all()
	}
	h = newHeld(holds, all)
	x.held[k] = h
	return h
}

// heldKey names what calls wait for: a queue's workers, by the queue's id; a reader,
// by its slot; a connection's writer, by the connection's id.
type heldKey struct {
	what heldWhat
	id   uint32
}

type heldWhat uint8

const (
	heldQueue heldWhat = iota
	heldReader
	heldWriter
)

// resolve makes parts that do not overlap out of parts that may, each piece of
// time going to the part of the lowest rank.
func resolve(in []part, lo, hi int64) []part {
	if len(in) == 0 {
		return nil
	}
	cuts := make([]int64, 0, 2*len(in))
	for i := range in {
		in[i].start, in[i].end = max(in[i].start, lo), min(in[i].end, hi)
		if in[i].end > in[i].start {
			cuts = append(cuts, in[i].start, in[i].end)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	// A total order of the parts, so that the order of the input does not matter.
	slices.SortFunc(in, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end),
			cmp.Compare(a.cause, b.cause), cmp.Compare(a.culprit, b.culprit), cmp.Compare(a.stack, b.stack))
	})
	var out []part
	for i := 1; i < len(cuts); i++ {
		a, b := cuts[i-1], cuts[i]
		for _, p := range in {
			if p.start > a || p.end < b {
				continue
			}
			if n := len(out); n > 0 && out[n-1].end == a && out[n-1].cause == p.cause && out[n-1].culprit == p.culprit && out[n-1].stack == p.stack && out[n-1].own == p.own {
				out[n-1].end = b
			} else {
				out = append(out, part{a, b, p.cause, p.culprit, p.stack, p.rank, p.own})
			}
			break
		}
	}
	return out
}

// covered gives the part that explains an instant exactly, nil where none does.
func (j *joined) covered(t int64) *part {
	i := sort.Search(len(j.parts), func(i int) bool { return j.parts[i].end > t })
	if i < len(j.parts) && j.parts[i].start <= t {
		return &j.parts[i]
	}
	return nil
}
