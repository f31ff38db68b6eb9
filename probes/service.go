package probes

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rpcprof/toolkit/probes/bpf"
	"github.com/rpcprof/toolkit/rpcprof/profile"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// service is one profiler of the target: its segment, and what was seen in it. What
// it numbers is the profiler's own until it becomes evidence.
type service struct {
	n        int // its place in Capture.services
	header   segment.Header
	seg      *segment.File // nil once it cannot be read any more
	forSlots *segment.File // the sampler's own, nil where it could not be had
	flip     uint64        // what its call ids differ in from those of the others
	records  []segment.Record
	roles    map[uint32]profile.Role
	conns    map[uint32]segment.Conn
	numbers  profile.Numbers // of what it numbers, once that is added to the evidence
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

// followed says whether the kernel tells of its calls.
func (k *kernel) followed(s *service) bool { return k != nil && slices.Contains(k.services, s) }

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
}

func (s *service) close() {
	for _, f := range []*segment.File{s.seg, s.forSlots} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// owner makes what a profiler says that something belongs to one of the process's.
func (s *service) owner(o profile.Owner) profile.Owner {
	return profile.Owner{Call: s.call(o.Call), Slot: s.numbers.Slot(o.Slot), Kind: o.Kind, Conn: s.numbers.Conn(o.Conn)}
}

// ownerOf is who a kernel event is tagged with.
func (c *Capture) ownerOf(ev *bpf.ProgramsEvent) profile.Owner {
	o := profile.Owner{Call: ev.Call, Slot: ev.Slot, Kind: segment.Kind(ev.SlotKind), Conn: ev.Conn}
	if o.Kind == segment.KindFree || int(ev.Profiler) >= len(c.kern.services) {
		return profile.Owner{}
	}
	return c.kern.services[ev.Profiler].owner(o)
}

// addCalls adds what every profiler has recorded and has in flight. It gives the
// calls that had a thread of their own.
func (c *Capture) addCalls(e *profile.Evidence, slots [][]segment.SlotState) []boundCall {
	methods := make([][]segment.Method, len(c.services))
	for i, s := range c.services {
		if s.seg == nil {
			continue
		}
		var err error
		if methods[i], err = s.seg.Methods(); err != nil {
			c.limit("method names of %q are missing: %v", s.name(), err)
		}
	}
	prefixes := prefixes(c.services, methods, slots)
	var bound []boundCall
	for i, s := range c.services {
		s.noteRoles(slots[i])
		c.renumber(s, slots[i])
		first := len(e.Calls)
		s.numbers = e.Add(&profile.Source{
			Methods: methods[i], Records: s.records, Slots: slots[i], Prefix: prefixes[i],
			Roles: slices.Collect(maps.Values(s.roles)), Conns: slices.Collect(maps.Values(s.conns)),
		})
		if s.onThreads() {
			bound = c.ownThreads(e, e.Calls[first:], slots[i], bound)
		}
	}
	slices.SortFunc(e.Roles, func(a, b profile.Role) int { return cmp.Compare(a.Slot, b.Slot) })
	return bound
}

// prefixes tells services of different names apart where calls of both bear a method
// of one name and side. Two profilers of one service have their methods in common: a
// process may well have one for each of its listeners.
func prefixes(services []*service, methods [][]segment.Method, slots [][]segment.SlotState) []string {
	type key struct {
		side segment.Side
		name string
	}
	first, clash := map[key]string{}, map[string]bool{}
	for i, s := range services {
		used := map[uint32]bool{}
		for k := range s.records {
			used[s.records[k].Method] = true
		}
		for k := range slots[i] {
			used[slots[i][k].Method] = slots[i][k].Kind == segment.KindCall || used[slots[i][k].Method]
		}
		for k := range methods[i] {
			of := key{methods[i][k].Side, methods[i][k].NameString()}
			if !used[uint32(k)] {
				continue
			}
			if was, ok := first[of]; ok && was != s.name() {
				clash[was], clash[s.name()] = true, true
			}
			first[of] = s.name()
		}
	}
	out := make([]string, len(services))
	for i, s := range services {
		if clash[s.name()] {
			out[i] = s.name() + ": "
		}
	}
	return out
}

// renumber makes call and thread ids the process's, in place.
func (c *Capture) renumber(s *service, slots []segment.SlotState) {
	for i := range s.records {
		r := &s.records[i]
		r.Call, r.Parent = s.call(r.Call), s.call(r.Parent)
		r.RecvTID, r.HandlerTID, r.WriteTID = c.threads.Global(r.RecvTID), c.threads.Global(r.HandlerTID), c.threads.Global(r.WriteTID)
	}
	for i := range slots {
		sl := &slots[i]
		sl.Call, sl.Parent, sl.TID = s.call(sl.Call), s.call(sl.Parent), c.threads.Global(sl.TID)
	}
	for i, r := range s.roles {
		r.TID = c.threads.Global(r.TID)
		s.roles[i] = r
	}
}
