package pipeline

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"github.com/rpcprof/toolkit/rpcprof"
)

// request is a request that was cut from a read.
type request struct {
	frame
	method  *method       // nil: not registered
	call    *rpcprof.Call // nil: not recorded
	expires int64         // by rpcprof.Now, 0: never
}

// serverConn is one connection of a server.
type serverConn struct {
	srv    *Server
	nc     net.Conn
	prof   *rpcprof.Conn
	out    *outbox
	ctx    context.Context // of its handlers
	cancel context.CancelFunc
	once   sync.Once
	broken atomic.Bool // what ctx.Err would say, without its lock

	requests []request // of one read; the reader's
}

func newServerConn(s *Server, nc net.Conn) *serverConn {
	c := &serverConn{srv: s, nc: nc, prof: s.cfg.Profiler.Conn(nc), out: newOutbox()}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// fail ends the connection: whatever reads, writes or waits on it returns.
func (c *serverConn) fail() {
	c.once.Do(func() {
		c.broken.Store(true)
		// The handlers last: what they say of their end is nobody's any more.
		c.out.close()
		_ = c.nc.Close()
		c.cancel()
	})
}

// run serves the connection until it breaks.
func (c *serverConn) run() {
	var writer sync.WaitGroup
	writer.Go(c.write)
	c.read()
	c.fail()
	writer.Wait()
	c.prof.Close()
}

// read reads requests and dispatches them until the connection breaks or the
// peer breaks the protocol.
func (c *serverConn) read() {
	role := c.prof.Reader()
	defer role.Close()
	in := newCutter()
	for read := uint32(1); ; read++ {
		if err := in.read(c.nc); err != nil {
			return
		}
		if !c.cut(in, read) {
			return
		}
		for i := range c.requests {
			c.dispatch(role, &c.requests[i])
		}
		clear(c.requests) // do not keep calls alive
	}
}

// cut collects the complete requests of a read. All are begun before the first
// is dispatched, so that one which waits behind the others of its read can be
// seen waiting. It gives false, with nothing begun, on a malformed frame.
func (c *serverConn) cut(in *cutter, read uint32) bool {
	// One reading of the clock for all: they became complete in this instant.
	recv := rpcprof.Now()
	c.requests = c.requests[:0]
	for {
		f, err := in.cut(c.srv.cfg.MaxFrame)
		if err != nil || f.size > 0 && f.kind != kindRequest {
			return false
		}
		if f.size == 0 {
			break
		}
		c.requests = append(c.requests, request{frame: f})
	}
	for i := range c.requests {
		q := &c.requests[i]
		if q.deadline > 0 {
			q.expires = recv + q.deadline
			if q.expires < 0 {
				q.expires = 0 // in 292 years
			}
		}
		if q.method = c.srv.methods[string(q.name)]; q.method == nil {
			continue
		}
		if q.call = c.srv.cfg.Profiler.Begin(q.method.prof, c.prof, recv); q.call != nil {
			q.call.Request(q.size, q.offset, read, i, len(c.requests))
			q.call.Enqueue(c.srv.waiting)
		}
	}
	return true
}

// dispatch serves a request here or hands it to the pool.
func (c *serverConn) dispatch(role *rpcprof.Role, q *request) {
	switch {
	case q.method == nil:
		// Not recorded: a peer could fill the method table with names it makes up.
		_ = c.out.push(nil, &frame{
			seq: q.seq, kind: kindError, code: CodeUnknownMethod,
			payload: append([]byte("unknown method "), q.name...),
		}, owed{})
	case c.srv.queue == nil:
		c.serve(role, q)
	default:
		c.enqueue(q)
	}
}

// write writes replies until the connection breaks.
func (c *serverConn) write() {
	role := c.prof.Writer()
	defer role.Close()
	var buf []byte
	var calls []owed
	ok := true
	for {
		if buf, calls, ok = c.out.take(buf, calls); !ok {
			break
		}
		begin := c.srv.cfg.Profiler.Now()
		for i := range calls {
			o := &calls[i]
			o.call.StampAt(rpcprof.Write, begin)
			if o.timing > 0 {
				t := o.call.Timing()
				copy(buf[o.timing:], t[:])
			}
		}
		if _, err := c.nc.Write(buf); err != nil {
			c.fail()
			abandon(calls)
			continue
		}
		sent := c.srv.cfg.Profiler.Now()
		for i := range calls {
			calls[i].call.StampAt(rpcprof.Sent, sent)
			calls[i].call.End(calls[i].outcome)
		}
	}
	abandon(calls)
}

// abandon ends calls whose reply cannot be written.
func abandon(calls []owed) {
	for i := range calls {
		calls[i].call.End(rpcprof.Cancelled)
	}
}
