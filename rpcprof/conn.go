package rpcprof

import (
	"net"
	"runtime"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Conn is one connection of the service.
type Conn struct {
	p      *Profiler
	id     uint32
	cookie uint64
}

// Conn enters a connection. nc may be nil where there is none; its socket is
// only asked for its cookie, by which the kernel's events name it.
func (p *Profiler) Conn(nc net.Conn) *Conn {
	if p == nil || p.seg == nil {
		return nil
	}
	c := segment.Conn{OpenedNS: Now()}
	if nc != nil {
		describe(&c, nc)
	}
	return &Conn{p: p, id: p.seg.OpenConn(c), cookie: c.Cookie}
}

// describe asks a connection what it is. What its own methods make of that, such
// as a panic where it is nil inside, does not reach the service.
func describe(c *segment.Conn, nc net.Conn) {
	defer func() { _ = recover() }()
	setText(c.Local[:], nc.LocalAddr())
	setText(c.Remote[:], nc.RemoteAddr())
	c.Cookie = socketCookie(nc)
}

func setText(b []byte, a net.Addr) {
	if a != nil {
		copy(b[:len(b)-1], a.String())
	}
}

// Reader makes the calling goroutine the connection's reader until the Role is closed.
func (c *Conn) Reader() *Role { return c.role(segment.KindReader) }

// Writer makes the calling goroutine the connection's writer until the Role is closed.
func (c *Conn) Writer() *Role { return c.role(segment.KindWriter) }

func (c *Conn) role(k segment.Kind) *Role {
	if c == nil || c.p == nil {
		return nil
	}
	r := c.p.role(k, c.id, 0)
	if r != nil {
		c.p.seg.SetConnRole(c.id, k, r.index)
	}
	return r
}

// Close marks the connection closed.
func (c *Conn) Close() {
	if c == nil || c.p == nil {
		return
	}
	c.p.seg.CloseConn(c.id)
	runtime.KeepAlive(c.p) // which keeps the segment mapped
}
