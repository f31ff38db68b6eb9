package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log"
	"runtime/debug"
	"sync"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
)

// job is a request on its way to a worker. Its payload is a copy: the reader
// reads on meanwhile.
type job struct {
	request
	conn *serverConn
	buf  []byte
}

var jobs = sync.Pool{New: func() any { return new(job) }}

// keepPayload bounds the copy that a free job keeps.
const keepPayload = 64 << 10

// enqueue hands a request to the pool. It waits while the queue is full: that
// stops reading, and the peer is held up by its own traffic.
func (c *serverConn) enqueue(q *request) {
	j := jobs.Get().(*job)
	j.request, j.conn = *q, c
	j.buf = append(j.buf[:0], q.payload...)
	j.payload = j.buf
	j.name = nil // it aliases the reader's buffer
	select {
	case c.srv.queue <- j:
		return
	default:
	}
	select {
	case c.srv.queue <- j:
	case <-c.ctx.Done():
		j.call.End(rpcprof.Cancelled)
		j.free()
	}
}

func (j *job) free() {
	buf := j.buf
	if cap(buf) > keepPayload {
		buf = nil
	}
	*j = job{buf: buf}
	jobs.Put(j)
}

// work is a worker: it serves what is queued until the queue is closed.
func (s *Server) work() {
	role := s.waiting.Worker()
	defer role.Close()
	for j := range s.queue {
		j.conn.serve(role, &j.request)
		j.free()
	}
}

// serve runs a request's handler and hands the reply to the writer. The role is
// the calling goroutine's: a worker or, inline, the connection's reader.
func (c *serverConn) serve(role *rpcprof.Role, q *request) {
	// Without a Profiler the clock is read only where a deadline asks for it.
	var now int64
	if q.call != nil || q.expires != 0 {
		now = rpcprof.Now()
		q.call.Start(role, now)
	}
	if c.broken.Load() {
		q.call.End(rpcprof.Cancelled) // nobody could be told the result
		return
	}
	reply := frame{seq: q.seq, kind: kindReply, timed: q.timed && q.call != nil}
	outcome := rpcprof.OK
	if q.expires != 0 && now >= q.expires {
		outcome = rpcprof.Expired
		reply.fail(CodeExpired, "deadline passed before the handler ran")
	} else {
		outcome = c.handle(q, &reply, now)
	}
	if err := c.out.push(nil, &reply, owed{call: q.call, outcome: outcome}); err != nil {
		q.call.End(rpcprof.Cancelled)
	}
}

// handle runs the handler, stamps that, and fills in the reply.
func (c *serverConn) handle(q *request, reply *frame, now int64) rpcprof.Outcome {
	ctx := q.call.Context(c.ctx)
	if q.expires != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(q.expires-now))
		defer cancel()
	}
	q.call.Stamp(rpcprof.Handler)
	out, err := safely(ctx, q.method.handler, q.payload)
	q.call.Stamp(rpcprof.Handled)
	if err != nil {
		code, outcome := classify(ctx, q, err)
		reply.fail(describe(code, err))
		return outcome
	}
	reply.payload = out
	if n := reply.encodedSize() - lengthSize; n > c.srv.cfg.MaxFrame {
		reply.fail(CodeTooLarge, fmt.Sprintf("reply of %d bytes where %d are allowed", n, c.srv.cfg.MaxFrame))
		return rpcprof.Error
	}
	return rpcprof.OK
}

// fail makes a reply an error.
func (f *frame) fail(code uint8, message string) {
	f.kind, f.code, f.payload = kindError, code, []byte(clip(message))
}

// classify says how a call ended whose handler returned an error.
func classify(ctx context.Context, q *request, err error) (uint8, rpcprof.Outcome) {
	if _, ok := err.(*panicError); ok {
		return CodePanic, rpcprof.Error
	}
	switch {
	// The context's timer may be a little behind the clock.
	case errors.Is(ctx.Err(), context.DeadlineExceeded), q.expires != 0 && rpcprof.Now() >= q.expires:
		return CodeExpired, rpcprof.Expired
	case ctx.Err() != nil:
		return CodeCancelled, rpcprof.Cancelled
	}
	return CodeHandler, rpcprof.Error
}

// describe gives what the caller is told of a handler's error. The error's
// methods are the handler's code too and may panic.
func describe(code uint8, err error) (told uint8, message string) {
	defer func() {
		if recover() != nil {
			told, message = code, "error without a message"
		}
	}()
	var own *RemoteError
	if errors.As(err, &own) {
		return own.Code, own.Message
	}
	return code, err.Error()
}

// panicError is a handler's panic, recovered.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.value) }

// safely calls a handler. A panic becomes an error, and its stack is logged: it
// is a mistake in one method and no reason to end the calls of all others.
func safely(ctx context.Context, h Handler, req []byte) (out []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			log.Printf("pipeline: handler panicked: %v\n%s", v, debug.Stack())
			out, err = nil, &panicError{v}
		}
	}()
	return h(ctx, req)
}
