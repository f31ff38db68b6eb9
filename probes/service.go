package probes

import (
	"fmt"

	"github.com/rpcprof/toolkit/probes/bpf"
	"github.com/rpcprof/toolkit/rpcprof/profile"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// service is one profiler of the target: its segment, and what was seen in it. Ids
// in it are the profiler's own; numbering makes them one process's.
type service struct {
	n        int // its place in Capture.services
	header   segment.Header
	seg      *segment.File // nil once it cannot be read any more
	forSlots *segment.File // the sampler's own, nil where it could not be had
	flip     uint64        // what its call ids differ in from those of the others
	records  []segment.Record
	roles    map[uint32]profile.Role
	conns    map[uint32]segment.Conn
	methods  []uint32 // method id to row, see methodRows
}

// name is what the owner called it.
func (s *service) name() string { return printable(s.header.ServiceString()) }

// onThreads says that its calls run on threads, whose ids stand where a Go
// service has goroutines.
func (s *service) onThreads() bool { return s.header.Flags&segment.FlagThreads != 0 }

// tagged says whether the kernel can find its calls.
func (s *service) tagged() bool {
	return s.header.Base != 0 && s.header.Flags&(segment.FlagGoroutines|segment.FlagThreads) != 0
}

// call makes a call's id one of the process's.
func (s *service) call(id uint64) uint64 {
	if id == 0 {
		return 0
	}
	return id ^ s.flip
}

// openServices opens every segment of the process twice: the sampler reads at its
// own pace.
func (c *Capture) openServices(files, again []*segment.File) {
	taken := map[uint32]bool{}
	for i, f := range files {
		s := &service{n: i, header: f.Header(), seg: f, roles: map[uint32]profile.Role{}, conns: map[uint32]segment.Conn{}}
		for k, a := range again {
			if a == nil {
				continue
			}
			if h := a.Header(); h.Base == s.header.Base && h.Seq == s.header.Seq && h.StartNS == s.header.StartNS {
				s.forSlots, again[k] = a, nil
				break
			}
		}
		// Call ids bear the profiler's number in the upper 8 bits, which two libraries
		// in one process, or the 257th profiler, may use again; in version 1 all did.
		top := s.header.Seq & 0xff
		if s.header.Version < 2 {
			top = 0
		}
		was := top
		for taken[top] && len(taken) < 256 {
			top = (top - 1) & 0xff
		}
		taken[top], s.flip = true, uint64(was^top)<<56
		c.services = append(c.services, s)
	}
	for _, a := range again {
		if a != nil {
			_ = a.Close()
		}
	}
	if len(files) > 1 {
		c.slots, c.connIDs, c.queues = numbers{}, numbers{}, numbers{}
	}
}

func (s *service) close() {
	for _, f := range []*segment.File{s.seg, s.forSlots} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// numbers gives ids of one kind, each profiler's own, a number in the process.
// Where there is but one profiler it is nil, and its ids stay as they are.
type numbers map[ownID]uint32

type ownID struct {
	service int
	id      uint32
}

func (n numbers) of(s *service, id uint32) uint32 {
	if n == nil || id == 0 {
		return id
	}
	k := ownID{s.n, id}
	v, ok := n[k]
	if !ok {
		v = uint32(len(n) + 1)
		n[k] = v
	}
	return v
}

// owner makes what a profiler says that something belongs to one of the process's.
func (c *Capture) owner(s *service, o profile.Owner) profile.Owner {
	return profile.Owner{Call: s.call(o.Call), Slot: c.slots.of(s, o.Slot), Kind: o.Kind, Conn: c.connIDs.of(s, o.Conn)}
}

func (c *Capture) role(s *service, r profile.Role) profile.Role {
	r.Slot, r.Conn, r.Queue, r.TID = c.slots.of(s, r.Slot), c.connIDs.of(s, r.Conn), c.queues.of(s, r.Queue), c.threads.global(r.TID)
	return r
}

// ownerOf is who a kernel event is tagged with.
func (c *Capture) ownerOf(ev *bpf.ProgramsEvent) profile.Owner {
	o := profile.Owner{Call: ev.Call, Slot: ev.Slot, Kind: segment.Kind(ev.SlotKind), Conn: ev.Conn}
	if o.Kind == segment.KindFree || int(ev.Profiler) >= len(c.kern.services) {
		return profile.Owner{}
	}
	return c.owner(c.kern.services[ev.Profiler], o)
}

// rowKey is what methods of several profilers have in common when they are one row:
// a process may well have a profiler for each of its listeners. Those of services
// of different names stay apart.
type rowKey struct {
	service, method string
	side            segment.Side
}

// methodRows gives every method of every profiler its row and each row its name;
// where two services have a method of one name and side, "service: method".
func (c *Capture) methodRows() (names []string, sides []segment.Side) {
	rows := map[rowKey]uint32{}
	services := map[rowKey]map[string]bool{} // by method and side
	var keys []rowKey
	for _, s := range c.services {
		var ms []segment.Method
		if s.seg != nil {
			var err error
			if ms, err = s.seg.Methods(); err != nil {
				c.limit("method names are missing: %v", err)
			}
		}
		need := len(ms)
		for i := range s.records {
			need = max(need, int(s.records[i].Method)+1)
		}
		s.methods = make([]uint32, 0, need)
		for i := range need {
			k := rowKey{service: s.name(), method: fmt.Sprintf("method %d", i)}
			if i < len(ms) {
				k.method, k.side = ms[i].NameString(), ms[i].Side
			}
			row, ok := rows[k]
			if !ok {
				row = uint32(len(keys))
				rows[k] = row
				keys = append(keys, k)
			}
			of := rowKey{method: k.method, side: k.side}
			if services[of] == nil {
				services[of] = map[string]bool{}
			}
			services[of][k.service] = true
			s.methods = append(s.methods, row)
		}
	}
	for _, k := range keys {
		name := k.method
		if len(services[rowKey{method: k.method, side: k.side}]) > 1 {
			name = k.service + ": " + name
		}
		names, sides = append(names, name), append(sides, k.side)
	}
	return names, sides
}
