package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
)

// ClientConfig says how a Client works. The zero value is usable.
type ClientConfig struct {
	// Profiler records the calls, and asks servers what part of them was theirs;
	// nil: they are not recorded.
	Profiler *rpcprof.Profiler
	// MaxFrame bounds a frame in bytes, default 1 MiB, within 2 KiB and 1 GiB. The
	// server has a limit of its own.
	MaxFrame int
}

// Client is the calling side of one connection. Its methods may be used from any
// number of goroutines at once; their calls share the connection.
type Client struct {
	nc    net.Conn
	out   *outbox
	limit int
	wg    sync.WaitGroup
	prof  *rpcprof.Profiler
	conn  *rpcprof.Conn

	mu      sync.Mutex
	seq     uint64
	waiting map[uint64]*waiter
	methods map[string]*rpcprof.Method
	err     error // why the connection is of no use any more
}

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

// Dial connects to a server. ctx bounds connecting only.
func Dial(ctx context.Context, network, addr string) (*Client, error) {
	return ClientConfig{}.Dial(ctx, network, addr)
}

// NewClient makes a client of a connection, which is then the client's. Close
// must be called to end its two goroutines, unless the connection fails.
func NewClient(nc net.Conn) *Client { return ClientConfig{}.NewClient(nc) }

// Dial connects to a server. ctx bounds connecting only.
func (cfg ClientConfig) Dial(ctx context.Context, network, addr string) (*Client, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("pipeline: %w", err)
	}
	return cfg.NewClient(nc), nil
}

// NewClient makes a client of a connection, as the function does.
func (cfg ClientConfig) NewClient(nc net.Conn) *Client {
	c := &Client{
		nc: nc, out: newOutbox(), waiting: map[uint64]*waiter{}, limit: limitOf(cfg.MaxFrame),
		prof: cfg.Profiler, conn: cfg.Profiler.Conn(nc), methods: map[string]*rpcprof.Method{},
	}
	c.wg.Go(c.read)
	c.wg.Go(c.write)
	return c
}

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
	f := frame{kind: kindRequest, name: []byte(method), payload: req}
	call := c.begin(ctx, method, &f)
	if err := c.refuse(ctx, &f); err != nil {
		call.End(outcome(err))
		return nil, err
	}
	w := waiters.Get().(*waiter)
	w.call = call
	return c.roundTrip(ctx, w, &f)
}

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

// remove takes a waiter out; whoever gets it is the only one to do so.
func (c *Client) remove(seq uint64) *waiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting[seq]
	delete(c.waiting, seq)
	return w
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
	c.conn.Close()
	for _, w := range told {
		w.result <- result{err: err}
	}
}

// read hands replies to their callers until the connection fails.
func (c *Client) read() {
	role := c.conn.Reader()
	defer role.Close()
	in := newCutter()
	for {
		if err := in.read(c.nc); err != nil {
			if errors.Is(err, io.EOF) && in.broken() {
				err = io.ErrUnexpectedEOF
			}
			c.fail(err)
			return
		}
		at := c.prof.Now() // one for all replies of a read: they became complete in this instant
		for {
			f, err := in.cut(c.limit)
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
			c.deliver(&f, at)
		}
	}
}

// deliver gives a reply to its caller. One that nobody waits for is dropped: its
// caller has given up, or the server invented it.
func (c *Client) deliver(f *frame, at int64) {
	w := c.remove(f.seq)
	if w == nil {
		return
	}
	if w.call != nil {
		w.call.StampAt(rpcprof.Received, at)
		w.call.Reply(f.size)
		if f.timed {
			w.call.ServerTiming(f.timing)
		}
	}
	if f.kind == kindError {
		w.result <- result{err: &RemoteError{Code: f.code, Message: clip(string(f.payload))}}
		return
	}
	w.result <- result{payload: append(make([]byte, 0, len(f.payload)), f.payload...)}
}

// write writes the requests that have gathered until the connection fails.
func (c *Client) write() {
	role := c.conn.Writer()
	defer role.Close()
	var buf []byte
	var calls []owed
	for {
		var ok bool
		if buf, calls, ok = c.out.take(buf, calls); !ok {
			return
		}
		c.stamp(calls, rpcprof.Write)
		if _, err := c.nc.Write(buf); err != nil {
			c.fail(err)
			return
		}
		c.stamp(calls, rpcprof.Sent)
	}
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
