package rpcprof

import (
	"errors"
	"fmt"
	"os"
	"runtime/trace"
	"sync/atomic"
	"time"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// control answers requests from outside. A nil control answers none.
type control struct {
	w     *segment.ControlWriter
	last  uint64 // the request that was answered last
	free  time.Time
	trace *os.File // the last trace, until the next or the end
}

// newControl makes the control file.
func newControl(seq uint32) (*control, error) {
	w, err := segment.NewControl(seq)
	if err != nil {
		return nil, err
	}
	return &control{w: w}, nil
}

func (c *control) close() {
	if c == nil {
		return
	}
	if c.trace != nil {
		_ = c.trace.Close()
	}
	c.w.Close()
}

// answer looks for a request and answers it. All that is read was written by
// somebody else: it is copied and held against its bounds.
func (c *control) answer(stop <-chan struct{}) {
	if c == nil {
		return
	}
	id := atomic.LoadUint64(&c.w.ID)
	if id == c.last {
		return
	}
	c.last = id
	kind, arg := atomic.LoadUint32(&c.w.Kind), atomic.LoadUint32(&c.w.Arg)
	switch {
	case kind != segment.RequestTrace:
		c.say(id, segment.StatusRefused, fmt.Sprintf("a request of kind %d is not known here", kind))
	case arg == 0 || arg > segment.MaxTraceMS:
		c.say(id, segment.StatusRefused, fmt.Sprintf("a trace of %d ms is not within 1 to %d ms", arg, segment.MaxTraceMS))
	case time.Now().Before(c.free):
		c.say(id, segment.StatusRefused, fmt.Sprintf("the last trace was less than %d s ago", segment.TraceEveryMS/1000))
	default:
		c.say(id, segment.StatusRunning, "")
		err := c.record(time.Duration(arg)*time.Millisecond, stop)
		if !errors.Is(err, errTracing) { // which costs nothing
			c.free = time.Now().Add(segment.TraceEveryMS * time.Millisecond)
		}
		if err != nil {
			c.say(id, segment.StatusFailed, err.Error())
			return
		}
		c.say(id, segment.StatusDone, "")
	}
}

func (c *control) say(id uint64, status uint32, message string) {
	clear(c.w.Message[:])
	copy(c.w.Message[:len(c.w.Message)-1], message)
	atomic.StoreUint32(&c.w.Status, status)
	atomic.StoreUint64(&c.w.Answer, id)
}

// record takes an execution trace into a new trace file.
func (c *control) record(d time.Duration, stop <-chan struct{}) error {
	if c.trace != nil {
		_ = c.trace.Close()
		c.trace = nil
	}
	f, err := segment.NewTraceFile()
	if err != nil {
		return err
	}
	b := &bounded{f: f, left: segment.MaxTraceBytes, full: make(chan struct{})}
	begin := Now()
	if err := trace.Start(b); err != nil {
		_ = f.Close()
		return fmt.Errorf("%w: %w", errTracing, err)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-stop:
	case <-b.full:
	}
	trace.Stop()
	if b.err != nil {
		_ = f.Close()
		return b.err
	}
	c.w.StartNS, c.w.EndNS, c.w.Bytes = begin, Now(), uint64(b.n)
	c.trace = f
	return nil
}

// errTracing: the service traces itself.
var errTracing = errors.New("tracing was not begun")

var errFull = errors.New("the trace is over its bound")

// bounded writes a trace of at most so many bytes.
type bounded struct {
	f       *os.File
	n, left int
	err     error
	full    chan struct{}
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.err != nil {
		return len(p), nil // the tracer does not take an error for an answer
	}
	if len(p) > b.left {
		b.fail(errFull)
		return len(p), nil
	}
	n, err := b.f.Write(p)
	b.n, b.left = b.n+n, b.left-n
	if err != nil {
		b.fail(err)
	}
	return len(p), nil
}

func (b *bounded) fail(err error) {
	b.err = err
	close(b.full)
}
