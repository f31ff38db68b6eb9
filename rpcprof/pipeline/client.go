package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Client is the calling side of one connection. Its methods may be used from any
// number of goroutines at once; their calls share the connection.
type Client struct {
	nc    net.Conn
	out   *outbox
	limit atomic.Int64
	wg    sync.WaitGroup

	mu      sync.Mutex
	seq     uint64
	waiting map[uint64]*waiter
	err     error // why the connection is of no use any more
}

// waiter is a call that waits for its reply.
type waiter struct{ result chan result }

type result struct {
	payload []byte
	err     error
}

// A waiter is reused only when nothing can be sent to it any more: its result
// was received, or it was taken out of the map before anyone else did.
var waiters = sync.Pool{New: func() any { return &waiter{result: make(chan result, 1)} }}

// Dial connects to a server. ctx bounds connecting only.
func Dial(ctx context.Context, network, addr string) (*Client, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("pipeline: %w", err)
	}
	return NewClient(nc), nil
}

// NewClient makes a client of a connection, which is then the client's. Close
// must be called to end its two goroutines, unless the connection fails.
func NewClient(nc net.Conn) *Client {
	c := &Client{nc: nc, out: newOutbox(), waiting: map[uint64]*waiter{}}
	c.limit.Store(DefaultMaxFrame)
	c.wg.Go(c.read)
	c.wg.Go(c.write)
	return c
}

// SetMaxFrame bounds the frames that the client sends and takes, in bytes; the
// default, for n of 0 or less, is DefaultMaxFrame. Set it before the first Call.
// The server has a limit of its own.
func (c *Client) SetMaxFrame(n int) { c.limit.Store(int64(limitOf(n))) }

// Call calls a method and waits for its reply, which is the caller's to keep.
// req is not used any more when it returns. The deadline of ctx is told to the
// server; when ctx ends first, Call returns ctx.Err() at once and the reply is
// dropped, but the server may run the call nevertheless. A handler's error is a
// *RemoteError. When the connection fails, every call that waits is told, by an
// error that wraps ErrClosed and the cause, and later calls fail at once.
func (c *Client) Call(ctx context.Context, method string, req []byte) ([]byte, error) {
	if method == "" || len(method) > MaxName {
		return nil, fmt.Errorf("pipeline: method name of %d bytes", len(method))
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f := frame{kind: kindRequest, name: []byte(method), payload: req}
	if n, limit := f.encodedSize()-lengthSize, c.limit.Load(); int64(n) > limit {
		return nil, fmt.Errorf("%w: %d bytes where %d are allowed", ErrFrameTooLarge, n, limit)
	}
	if t, ok := ctx.Deadline(); ok {
		if f.deadline = int64(time.Until(t)); f.deadline <= 0 {
			return nil, context.DeadlineExceeded
		}
	}
	w := waiters.Get().(*waiter)
	if err := c.register(w, &f.seq); err != nil {
		waiters.Put(w)
		return nil, err
	}
	// When the outbox is closed the connection has failed, and the waiter is told
	// like all others.
	if err := c.out.push(ctx.Done(), &f, nil, 0); errors.Is(err, errOutboxDone) {
		c.forget(f.seq, w)
		return nil, ctx.Err()
	}
	select {
	case r := <-w.result:
		waiters.Put(w)
		return r.payload, r.err
	case <-ctx.Done():
		c.forget(f.seq, w)
		return nil, ctx.Err()
	}
}

func (c *Client) register(w *waiter, seq *uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.seq++
	*seq = c.seq
	c.waiting[c.seq] = w
	return nil
}

// remove takes a waiter out; whoever gets it is the only one to do so.
func (c *Client) remove(seq uint64) *waiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting[seq]
	delete(c.waiting, seq)
	return w
}

func (c *Client) forget(seq uint64, w *waiter) {
	if c.remove(seq) == w {
		waiters.Put(w)
	}
}

// Close ends the connection and waits for the client's goroutines. Calls that
// wait return ErrClosed. It may be called more than once.
func (c *Client) Close() error {
	c.fail(nil)
	c.wg.Wait()
	return nil
}

// fail ends the connection and tells every call that waits, once; cause is nil
// for Close.
func (c *Client) fail(cause error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = ErrClosed
	if cause != nil {
		c.err = fmt.Errorf("%w: %w", ErrClosed, cause)
	}
	err, told := c.err, c.waiting
	c.waiting = nil
	c.mu.Unlock()
	_ = c.nc.Close()
	c.out.close()
	for _, w := range told {
		w.result <- result{err: err}
	}
}

// read hands replies to their callers until the connection fails.
func (c *Client) read() {
	in := newCutter()
	for {
		if err := in.read(c.nc); err != nil {
			if errors.Is(err, io.EOF) && in.broken() {
				err = io.ErrUnexpectedEOF
			}
			c.fail(err)
			return
		}
		for {
			f, err := in.cut(int(c.limit.Load()))
			if err == nil && f.kind == kindRequest {
				err = fmt.Errorf("%w: request from a server", ErrMalformed)
			}
			if err != nil {
				c.fail(err)
				return
			}
			if f.size == 0 {
				break
			}
			c.deliver(&f)
		}
	}
}

// deliver gives a reply to its caller. One that nobody waits for is dropped: its
// caller has given up, or the server invented it.
func (c *Client) deliver(f *frame) {
	w := c.remove(f.seq)
	if w == nil {
		return
	}
	if f.kind == kindError {
		w.result <- result{err: &RemoteError{Code: f.code, Message: clip(string(f.payload))}}
		return
	}
	w.result <- result{payload: append(make([]byte, 0, len(f.payload)), f.payload...)}
}

// write writes the requests that have gathered until the connection fails.
func (c *Client) write() {
	var buf []byte
	for {
		var ok bool
		if buf, _, ok = c.out.take(buf, nil); !ok {
			return
		}
		if _, err := c.nc.Write(buf); err != nil {
			c.fail(err)
			return
		}
	}
}
