package pipeline

import (
	"errors"
	"sync"

	"github.com/rpcprof/toolkit/rpcprof"
)

const (
	outboxFrames = 4096    // frames that may wait for the writer
	outboxBytes  = 4 << 20 // and bytes; a single frame may be longer
	keepBuffer   = 1 << 20 // a larger buffer is not kept after its write
)

var (
	errOutboxClosed = errors.New("pipeline: outbox closed")
	errOutboxDone   = errors.New("pipeline: no room in time")
)

// outbox is what waits for a connection's writer: frames, encoded one behind the
// other so that one system call writes them all, and the calls to end then.
type outbox struct {
	mu     sync.Mutex
	buf    []byte
	owed   []owed
	frames int
	closed bool
	room   chan struct{} // closed when there is room again; nil when nobody waits
	wake   chan struct{} // of capacity 1: there is something to take
}

// owed is a recorded call whose frame is in the outbox: a server's, or the number
// under which the client's waits.
type owed struct {
	call    *rpcprof.Call
	outcome rpcprof.Outcome
	timing  int // where in the buffer the reply's times go, 0 nowhere
	seq     uint64
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// push encodes a frame into the outbox and waits for room before. The frame's
// memory is the caller's again when it returns. With an error nothing was taken:
// the outbox is closed, or done was.
//
// A call is released in here, once there is room and before the writer can get
// it: a worker that waits for room is not free, and once the writer has the call
// the worker must not touch it.
func (o *outbox) push(done <-chan struct{}, f *frame, w owed) error {
	size := f.encodedSize()
	o.mu.Lock()
	for !o.closed && o.frames > 0 && (o.frames >= outboxFrames || len(o.buf)+size > outboxBytes) {
		if o.room == nil {
			o.room = make(chan struct{})
		}
		room := o.room
		o.mu.Unlock()
		select {
		case <-room:
		case <-done:
			return errOutboxDone
		}
		o.mu.Lock()
	}
	if o.closed {
		o.mu.Unlock()
		return errOutboxClosed
	}
	if f.timed && f.kind != kindRequest {
		w.timing = len(o.buf) + lengthSize + headSize
	}
	o.buf = appendFrame(o.buf, f)
	o.frames++
	if w.call != nil {
		w.call.Reply(size)
		w.call.Release(0)
	}
	if w.call != nil || w.seq != 0 {
		o.owed = append(o.owed, w)
	}
	first := o.frames == 1
	o.mu.Unlock()
	if first {
		o.signal()
	}
	return nil
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take waits for frames and gives all there are, in exchange for the empty
// slices of the last time. ok is false once the outbox is closed; what it gives
// then cannot be written any more.
func (o *outbox) take(buf []byte, calls []owed) (_ []byte, _ []owed, ok bool) {
	if cap(buf) > keepBuffer {
		buf = nil
	}
	for {
		o.mu.Lock()
		if o.frames > 0 || o.closed {
			buf, o.buf = o.buf, buf[:0]
			clear(calls)
			calls, o.owed = o.owed, calls[:0]
			o.frames = 0
			if o.room != nil {
				close(o.room)
				o.room = nil
			}
			ok = !o.closed
			o.mu.Unlock()
			return buf, calls, ok
		}
		o.mu.Unlock()
		<-o.wake
	}
}

// close refuses what comes, and wakes the writer and all who wait for room.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
	o.mu.Unlock()
	o.signal()
}
