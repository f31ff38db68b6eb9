package main

import "github.com/rpcprof/toolkit/rpcprof"

// begin begins the calls of one read. Their last bytes came with the same read, so
// they share its time, and their places in it say who waited for whom.
func (c *conn) begin(batch []request) {
	for i := range batch {
		q := &batch[i]
		q.call = c.srv.prof.Begin(q.method.prof, c.prof, c.readAt)
		q.call.Request(q.size, c.offset, c.reads, i, len(batch))
		c.offset += int64(q.size)
	}
}

// owed is a call whose reply is in the buffer. It belongs to whoever holds the
// connection's lock, and no longer to the goroutine that served it.
type owed struct {
	call    *rpcprof.Call
	outcome rpcprof.Outcome
}

// owe enters a call whose reply has just been put into the buffer.
func (c *conn) owe(q *request, size int, err error) {
	if q.call == nil {
		return // not recorded
	}
	o := owed{q.call, rpcprof.OK}
	if err != nil {
		o.outcome = rpcprof.Error
	}
	q.call.Reply(size)
	c.owed = append(c.owed, o)
}

// write stamps the calls whose replies the next flush writes: all with one time, as
// it is one system call.
func (c *conn) write() {
	now := c.srv.prof.Now()
	for _, o := range c.owed {
		o.call.StampAt(rpcprof.Write, now)
	}
}

// sent ends them when it has returned. After that nothing may touch them: their
// memory is the next call's.
func (c *conn) sent(err error) {
	now := c.srv.prof.Now()
	for _, o := range c.owed {
		if err == nil {
			o.call.StampAt(rpcprof.Sent, now)
		} else {
			o.outcome = rpcprof.Cancelled // nobody could be told
		}
		o.call.End(o.outcome)
	}
	clear(c.owed)
	c.owed = c.owed[:0]
}
