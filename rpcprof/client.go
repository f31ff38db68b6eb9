package rpcprof

import (
	"context"
	"encoding/binary"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// BeginClient starts a call that is made, of a method that Client gave, at a time by
// Now; 0 is now. One that is made within a call being served knows that call: the context carries it, or the
// calling goroutine serves it.
func (p *Profiler) BeginClient(ctx context.Context, m *Method, at int64) *Call {
	if p == nil || p.seg == nil {
		return nil
	}
	if m == nil || m.side != segment.Client {
		return nil
	}
	_, parent, _ := find(ctx)
	c := p.begin(m, nil, at, parent)
	if c == nil {
		return nil
	}
	// The slot names the goroutine that waits, so that it can be looked at. In the
	// index that goroutine stays with the call it serves, where it serves one.
	g := getg()
	c.g = uintptr(g)
	c.rec.Goid, c.rec.HandlerTID = p.off.goid(g), c.rec.RecvTID
	c.rec.RecvTID = 0
	store64(&c.slot.Goid, c.rec.Goid)
	c.slot.TID = c.rec.HandlerTID
	store64(&c.slot.G, uint64(c.g))
	if parent == 0 && c.number < p.callSlots {
		c.entry, c.prev = p.bindFree(c.g, c.number)
	}
	return c
}

// Via says which connection a client's call goes over.
func (c *Call) Via(conn *Conn) {
	if c == nil || !c.live || conn == nil || conn.p != c.p {
		return
	}
	c.rec.Conn, c.slot.Conn = conn.id, conn.id
}

// ServerTiming takes over what the reply says of the call's time at the server, as
// Timing made it there. All zero says nothing.
func (c *Call) ServerTiming(b [24]byte) {
	if c == nil || !c.live || c.side != uint8(segment.Client) {
		return
	}
	t := segment.Timing{Call: binary.LittleEndian.Uint64(b[:])}
	if t.Call == 0 {
		return
	}
	for i, d := range []*int64{&t.Queue, &t.Decode, &t.Handler, &t.Encode} {
		*d = int64(binary.LittleEndian.Uint32(b[8+4*i:])) * segment.TimingUnit
	}
	c.rec.SetServerTiming(t)
}
