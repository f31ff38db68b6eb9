package rpcprof

import "github.com/rpcprof/toolkit/rpcprof/segment"

// Stamp is one instant in a call.
type Stamp uint8

// The stamps, in the order they are taken. Begin takes the first of a server's
// call, Recv. BeginClient takes the first of a client's, and End its last.
const (
	Recv    Stamp = iota // server: the request's frame is complete in user memory
	Dequeue              // server: a worker takes the request
	Handler              // server: user code starts
	Handled              // server: user code returned
	Write                // the request's or reply's bytes enter the write to the socket
	Sent                 // that write returned

	Acquired // client: the caller has a connection; between BeginClient and Encoded
	Encoded  // client: the request is encoded and waits for the writer; before Write
	Received // client: the reply's frame is complete in user memory; after Sent
	Woken    // client: the caller runs again
	stamps
)

// none marks a stamp that the client side does not have.
const none = 0xff

// clientStamp is where a client's record has each stamp; a server's has it at its
// own number.
var clientStamp = [stamps]segment.Stage{
	Recv: none, Dequeue: none, Handler: none, Handled: none,
	Acquired: segment.Stage(segment.Acquired), Encoded: segment.Stage(segment.Encoded), Write: segment.Stage(segment.ClientWrite),
	Sent: segment.Stage(segment.ClientSent), Received: segment.Stage(segment.Received), Woken: segment.Stage(segment.Woken),
}

// Stamp takes a stamp now. One that the call's side does not have is ignored.
func (c *Call) Stamp(s Stamp) {
	if c == nil {
		return
	}
	c.stamp(s, 0)
}

// StampAt takes a stamp at a time that was read already: where two instants are
// one, they share it. 0 is now.
func (c *Call) StampAt(s Stamp, at int64) {
	if c == nil {
		return
	}
	c.stamp(s, at)
}

func (c *Call) stamp(s Stamp, at int64) {
	if at <= 0 {
		if at = tscNow(); at == 0 {
			at = slowNow()
		}
	}
	if c.side != uint8(segment.Server) {
		c.stampOther(s, at)
		return
	}
	if !c.live || s > Sent {
		return
	}
	t := c.slot
	t.Stamps[s] = at
	// The stage that begins at a stamp has the stamp's number plus one.
	t.Stage = min(segment.Stage(s)+1, segment.StageWrite)
	if s == Write {
		c.rec.WriteTID = c.p.off.tid(getg())
	}
}

// stampOther is stamp for what is not a server's call.
func (c *Call) stampOther(s Stamp, at int64) {
	if !c.live || s >= stamps || c.side != uint8(segment.Client) || clientStamp[s] == none {
		return
	}
	i := clientStamp[s]
	c.slot.Stamps[i] = at
	c.slot.Stage = i + 1
	switch s {
	case Write:
		c.rec.WriteTID = c.p.off.tid(getg())
	case Received:
		c.rec.RecvTID = c.p.off.tid(getg())
		if t := &c.slot.Stamps[segment.ClientSent]; *t > at {
			*t = 0 // the reply was there before the write had returned: that was not seen in time
		}
	}
}
