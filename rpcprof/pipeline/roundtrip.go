package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
)

// waiter is a call that waits for its reply. Its record is, while it is in the
// map, whoever's that holds the client's lock; then the reader's, until the result
// is sent; then the caller's.
type waiter struct {
	result chan result
	call   *rpcprof.Call
}

type result struct {
	payload []byte
	err     error
}

// A waiter is reused only when nothing can be sent to it any more: its result
// was received, or it was taken out of the map before anyone else did.
var waiters = sync.Pool{New: func() any { return &waiter{result: make(chan result, 1)} }}

// refuse gives the reason not to send a request at all, and tells it the deadline.
// Such a call is recorded like any other: its caller has called and was not served.
func (c *Client) refuse(ctx context.Context, f *frame) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n, limit := f.encodedSize()-lengthSize, c.limit; n > limit {
		return fmt.Errorf("%w: %d bytes where %d are allowed", ErrFrameTooLarge, n, limit)
	}
	if t, ok := ctx.Deadline(); ok {
		if f.deadline = int64(time.Until(t)); f.deadline <= 0 {
			return context.DeadlineExceeded
		}
	}
	return nil
}

// roundTrip sends a request and waits for its result.
func (c *Client) roundTrip(ctx context.Context, w *waiter, f *frame) ([]byte, error) {
	call := w.call
	if err := c.register(w, f); err != nil {
		w.free()
		call.End(rpcprof.Error)
		return nil, err
	}
	// When the outbox is closed the connection has failed, and the waiter is told
	// like all others.
	o := owed{}
	if call != nil {
		o.seq = f.seq
	}
	if err := c.out.push(ctx.Done(), f, o); errors.Is(err, errOutboxDone) {
		return c.give(ctx, w, f.seq)
	}
	select {
	case r := <-w.result:
		return w.take(r)
	case <-ctx.Done():
		return c.give(ctx, w, f.seq)
	}
}

// begin starts the call's record.
func (c *Client) begin(ctx context.Context, method string, f *frame) *rpcprof.Call {
	if c.prof == nil {
		return nil
	}
	at := c.prof.Now()
	call := c.prof.BeginClient(ctx, c.method(method), at)
	call.Via(c.conn)
	call.StampAt(rpcprof.Acquired, at) // the connection is there
	f.timed = call != nil
	return call
}

// method gives the Profiler's method of that name.
func (c *Client) method(name string) *rpcprof.Method {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.methods[name]
	if m == nil {
		m = c.prof.Client(name)
		if len(c.methods) < maxMethods {
			c.methods[name] = m
		}
	}
	return m
}

// maxMethods bounds the names that a client remembers; looking up others takes the
// Profiler's lock.
const maxMethods = 1024

// give ends the wait for a call whose context is done, unless its result is there.
func (c *Client) give(ctx context.Context, w *waiter, seq uint64) ([]byte, error) {
	if c.remove(seq) != w {
		return w.take(<-w.result) // it is on its way
	}
	call := w.call
	w.free()
	call.End(outcome(ctx.Err()))
	return nil, ctx.Err()
}

// take gives the caller its result.
func (w *waiter) take(r result) ([]byte, error) {
	call := w.call
	if !errors.Is(r.err, ErrClosed) { // else there was no reply, and the wait for it ends with the call
		call.Stamp(rpcprof.Woken)
	}
	w.free()
	call.End(outcome(r.err))
	return r.payload, r.err
}

func (w *waiter) free() {
	w.call = nil
	waiters.Put(w)
}

// outcome says how a call ended that gave an error.
func outcome(err error) rpcprof.Outcome {
	if err == nil {
		return rpcprof.OK
	}
	var remote *RemoteError
	switch {
	case errors.Is(err, ErrClosed): // whatever it wraps
		return rpcprof.Error
	case errors.Is(err, context.DeadlineExceeded): // a RemoteError's too
		return rpcprof.Expired
	case errors.Is(err, context.Canceled), errors.As(err, &remote) && remote.Code == CodeCancelled:
		return rpcprof.Cancelled
	}
	return rpcprof.Error
}

// register enters a call among those that wait, and numbers it.
func (c *Client) register(w *waiter, f *frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.seq++
	f.seq = c.seq
	w.call.Request(f.encodedSize(), -1, 0, 0, 0)
	w.call.Stamp(rpcprof.Encoded)
	c.waiting[c.seq] = w
	return nil
}

// stamp stamps the calls of a write that still wait: a reply can come before the
// write that brought it about has returned.
func (c *Client) stamp(calls []owed, s rpcprof.Stamp) {
	if len(calls) == 0 {
		return
	}
	at := c.prof.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range calls {
		if w := c.waiting[calls[i].seq]; w != nil {
			w.call.StampAt(s, at)
		}
	}
}
