package main

import (
	"bufio"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/rpcprof/toolkit/rpcprof"
)

// handler serves one method. req is its own.
type handler func(req []byte) ([]byte, error)

type method struct {
	handle handler
	prof   *rpcprof.Method //+
}

// server serves calls, each on a goroutine of its own.
type server struct {
	prof *rpcprof.Profiler //+

	methods map[string]*method
	unknown *method       // what is called by any other name
	running chan struct{} // a place for each call that runs, so that goroutines are bounded
	conns   sync.WaitGroup
}

func newServer(prof *rpcprof.Profiler) *server {
	s := &server{methods: map[string]*method{}, running: make(chan struct{}, 1024)}
	s.prof = prof //+
	s.unknown = s.handle("_unknown", func([]byte) ([]byte, error) { return nil, errors.New("no such method") })
	return s
}

// handle registers a method, before serve.
func (s *server) handle(name string, h handler) *method {
	m := &method{handle: h}
	m.prof = s.prof.Method(name) //+
	s.methods[name] = m
	return m
}

// serve accepts connections until l is closed. Those it has are served until their
// clients leave.
func (s *server) serve(l *net.TCPListener) error {
	for {
		tc, err := l.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		c := &conn{srv: s, tc: tc, out: bufio.NewWriterSize(tc, maxFrame)}
		c.in = bufio.NewReaderSize(c, maxFrame)
		s.conns.Go(c.serve)
	}
}

// conn is one connection: its reader, and its calls' goroutines, which write.
type conn struct {
	srv   *server
	tc    *net.TCPConn
	in    *bufio.Reader
	calls sync.WaitGroup

	writers atomic.Int32 // wait for the lock
	mu      sync.Mutex   // of the buffer, and of what it holds
	out     *bufio.Writer
	owed    []owed //+

	prof   *rpcprof.Conn //+
	readAt int64         //+ when the last read returned
	reads  uint32        //+ how many there were
	offset int64         //+ of the next frame in all that was received
}

// Read is what the bufio.Reader reads from.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.tc.Read(b)
	c.readAt = c.srv.prof.Now() //+
	c.reads++                   //+
	return n, err
}

// request is a request, on its way through the server.
type request struct {
	seq     uint64
	method  *method
	payload []byte
	call    *rpcprof.Call //+
	size    int           //+ of its frame, in bytes
}

// serve reads requests and starts a goroutine for each until the connection breaks.
func (c *conn) serve() {
	c.prof = c.srv.prof.Conn(c.tc) //+
	defer c.prof.Close()           //+
	role := c.prof.Reader()        //+
	defer role.Close()             //+

	var batch []request
	for {
		q, err := c.next()
		if err != nil {
			break
		}
		// The requests that are complete after one read are taken together. The
		// transport would not need that; the stamps do, to know each one's place.
		batch = append(batch[:0], q)
		for complete(c.in) {
			if q, err = c.next(); err != nil {
				break
			}
			batch = append(batch, q)
		}
		c.begin(batch) //+
		for _, q := range batch {
			c.srv.running <- struct{}{}
			c.calls.Go(func() { c.run(&q) })
		}
		clear(batch)
	}
	_ = c.tc.Close()
	c.calls.Wait()
}

// next reads a request.
func (c *conn) next() (request, error) {
	b, err := readFrame(c.in)
	if err != nil {
		return request{}, err
	}
	seq, name, payload, err := parseRequest(b)
	if err != nil {
		return request{}, err
	}
	q := request{seq: seq, method: c.srv.methods[name], payload: payload}
	q.size = len(b) //+
	if q.method == nil {
		q.method = c.srv.unknown
	}
	return q, nil
}

// run serves a call.
func (c *conn) run(q *request) {
	now := c.srv.prof.Now()              //+
	q.call.Start(nil, now)               //+
	q.call.StampAt(rpcprof.Handler, now) //+ the same instant: nothing is decoded here
	out, err := q.method.handle(q.payload)
	q.call.Stamp(rpcprof.Handled) //+
	c.reply(q, out, err)
	<-c.srv.running
}

// reply writes a reply into the buffer; and the buffer to the connection, unless
// somebody waits to add the next reply, who will do so then.
func (c *conn) reply(q *request, out []byte, err error) {
	frame := encodeReply(q.seq, out, err)
	c.writers.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.writers.Add(-1) == 0
	if c.out.Available() < len(frame) {
		c.flush() // a reply is never written in two parts
	}
	_, _ = c.out.Write(frame) // it fits; a broken connection shows at the flush
	c.owe(q, len(frame), err) //+
	if last {
		c.flush()
		return
	}
	q.call.Release(0) //+ from here on it is the next writer's, who ends it
}

// flush writes what has gathered. The lock is held.
func (c *conn) flush() {
	c.write() //+
	err := c.out.Flush()
	c.sent(err) //+
	if err != nil {
		_ = c.tc.Close() // which ends the reader too
	}
}
