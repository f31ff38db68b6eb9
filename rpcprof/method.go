package rpcprof

import "github.com/rpcprof/toolkit/rpcprof/segment"

// Method is a method that is served or called, by its fully qualified name.
type Method struct {
	p    *Profiler
	id   uint32
	side segment.Side
	name string
}

type methodKey struct {
	name string
	side segment.Side
}

// Method gives the served method of that name, such as "orders.Orders/Get". Look
// it up once and keep it; a look-up takes a lock. Names beyond the bound share
// "_other".
func (p *Profiler) Method(name string) *Method { return p.method(name, segment.Server) }

// Client gives the called method of that name, for BeginClient.
func (p *Profiler) Client(name string) *Method { return p.method(name, segment.Client) }

func (p *Profiler) method(name string, side segment.Side) *Method {
	if p == nil || p.seg == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := methodKey{name, side}
	if m := p.methods[k]; m != nil {
		return m
	}
	m := p.add(name, side)
	if m == nil {
		return p.other[side]
	}
	p.methods[k] = m
	return m
}

// add enters a name into the table, nil where that is full.
func (p *Profiler) add(name string, side segment.Side) *Method {
	id, ok := p.seg.AddMethod(name, side)
	if !ok {
		return nil
	}
	return &Method{p: p, id: id, side: side, name: name}
}

// Name is the method's name.
func (m *Method) Name() string {
	if m == nil {
		return ""
	}
	return m.name
}
