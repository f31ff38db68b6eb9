package profile

import (
	"fmt"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Source is what one profiler's segment told. Several of one process, or of
// several, may be added to the same Evidence: what they number for themselves,
// methods, connections, queues and slots, is numbered anew there.
type Source struct {
	Methods []segment.Method
	Records []segment.Record
	Slots   []segment.SlotState // the calls in flight and the roles at the window's end
	Roles   []Role              // roles seen earlier, with this segment's numbers
	Conns   []segment.Conn
	// Prefix goes before the methods' names, where several services are told apart.
	Prefix string
}

// Numbers tells how a Source's own numbers were changed.
type Numbers struct {
	slot, queue uint32
	conns       map[uint32]uint32
}

// Slot gives the Evidence's number of a slot.
func (n Numbers) Slot(s uint32) uint32 {
	if s == 0 && n.slot == 0 {
		return 0
	}
	return s + n.slot
}

// Conn gives the Evidence's number of a connection, 0 for none.
func (n Numbers) Conn(c uint32) uint32 { return n.conns[c] }

func (n Numbers) queueOf(q uint32) uint32 {
	if q == 0 {
		return 0
	}
	return q + n.queue
}

// worker gives the Evidence's number of a role's slot, 0 for none.
func (n Numbers) worker(s uint32) uint32 {
	if s == 0 {
		return 0
	}
	return s + n.slot
}

// Add takes over what a segment told. Connections keep their numbers in the first
// Source; each later one's are put behind those before.
func (e *Evidence) Add(src *Source) Numbers {
	n := Numbers{slot: e.slotBase, queue: e.queueBase, conns: map[uint32]uint32{}}
	e.slotBase += 2 * segment.MaxSlots
	if e.Cookies == nil {
		e.Cookies = map[uint32]uint64{}
	}
	for _, c := range src.Conns {
		e.conn(n, c.ID)
		if c.Cookie != 0 {
			e.Cookies[n.Conn(c.ID)] = c.Cookie
		}
	}
	ids := make([]uint32, len(src.Methods))
	for i := range src.Methods {
		m := &src.Methods[i]
		ids[i] = e.method(src.Prefix+m.NameString(), m.Side)
	}
	method := func(id uint32) (uint32, segment.Side) {
		if int(id) < len(ids) {
			return ids[id], src.Methods[id].Side
		}
		return e.method(fmt.Sprintf("%smethod %d", src.Prefix, id), segment.Server), segment.Server
	}
	seen := make(map[uint64]bool, len(src.Records))
	for i := range src.Records {
		r := &src.Records[i]
		seen[r.Call] = true
		e.conn(n, r.Conn)
		id, side := method(r.Method)
		if side > segment.Client {
			e.Parts = append(e.Parts, Part{Call: r.Parent, Method: id, Side: side, Start: r.Stamps[segment.Begun], End: r.Stamps[segment.Ended]})
			continue
		}
		c := Call{
			ID: r.Call, Parent: r.Parent, Method: id, Side: side, Outcome: r.Outcome, Stamps: r.Stamps,
			Conn: n.Conn(r.Conn), TIDs: [3]uint32{r.RecvTID, r.HandlerTID, r.WriteTID}, Offset: segment.NoOffset,
			Batch: r.Batch, BatchPos: r.BatchPos, BatchOf: r.BatchSize, Goid: r.Goid, TraceID: r.TraceID, ThreadCPU: r.ThreadCPU,
			Cut: r.Flags&segment.FlagCut != 0,
		}
		if side == segment.Client {
			c.Server, c.ServerKnown = r.ServerTiming()
		} else {
			c.Release, c.Queue, c.Worker, c.Workers, c.Offset = r.Release, n.queueOf(r.Queue), n.worker(r.Worker), r.Workers, r.Offset
		}
		e.queueBase = max(e.queueBase, c.Queue)
		e.Calls = append(e.Calls, c)
	}
	for i := range src.Slots {
		s := &src.Slots[i]
		e.conn(n, s.Conn)
		if s.Kind != segment.KindCall {
			e.addRole(n, Role{s.Index, s.Kind, s.Conn, s.Queue, s.TID})
			continue
		}
		if seen[s.Call] || s.Stamps[0] == 0 || s.Stamps[0] > e.Window.EndNS || !ordered(&s.Slot, e.Window.EndNS+slack) {
			continue
		}
		id, side := method(s.Method)
		if side > segment.Client {
			e.Parts = append(e.Parts, Part{Call: s.Parent, Method: id, Side: side, Start: s.Stamps[0], End: e.Window.EndNS})
			continue
		}
		region := ""
		if r := s.Region - 1; int(r) < len(src.Methods) {
			region = src.Methods[r].NameString()
		}
		e.Calls = append(e.Calls, Call{
			ID: s.Call, Parent: s.Parent, Method: id, Side: side, Outcome: segment.Unfinished, Region: region, Stamps: s.Stamps, Conn: n.Conn(s.Conn),
			Queue: n.queueOf(s.Queue), Worker: n.worker(s.Worker), Goid: s.Goid, Offset: segment.NoOffset, TIDs: [3]uint32{0, s.TID, 0},
		})
	}
	for _, r := range src.Roles {
		e.conn(n, r.Conn)
		e.addRole(n, r)
	}
	return n
}

// addRole adds a role with the Source's numbers, unless its slot has one already.
func (e *Evidence) addRole(n Numbers, r Role) {
	r.Slot, r.Conn, r.Queue = n.Slot(r.Slot), n.Conn(r.Conn), n.queueOf(r.Queue)
	e.queueBase = max(e.queueBase, r.Queue)
	for i := range e.Roles {
		if e.Roles[i].Slot == r.Slot {
			return
		}
	}
	e.Roles = append(e.Roles, r)
}

// conn gives a connection of the Source a number.
func (e *Evidence) conn(n Numbers, id uint32) {
	if id == 0 || n.conns[id] != 0 {
		return
	}
	if n.slot == 0 {
		n.conns[id] = id
		e.connBase = max(e.connBase, id)
		return
	}
	e.connBase++
	n.conns[id] = e.connBase
}

func (e *Evidence) method(name string, side segment.Side) uint32 {
	for i, have := range e.Methods {
		if have == name && e.side(uint32(i)) == side {
			return uint32(i)
		}
	}
	for len(e.Sides) < len(e.Methods) {
		e.Sides = append(e.Sides, segment.Server)
	}
	e.Methods, e.Sides = append(e.Methods, name), append(e.Sides, side)
	return uint32(len(e.Methods) - 1)
}

func (e *Evidence) side(method uint32) segment.Side {
	if int(method) < len(e.Sides) {
		return e.Sides[method]
	}
	return segment.Server
}

// slack is how much later than the window's end slots may have been copied.
const slack = int64(60e9)

// ordered refuses a slot that was copied while it changed hands, and one whose times
// have not come yet.
func ordered(s *segment.Slot, end int64) bool {
	last := int64(0)
	for _, t := range s.Stamps {
		if t == 0 {
			continue
		}
		if t < last || t > end {
			return false
		}
		last = t
	}
	return true
}
