package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

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
