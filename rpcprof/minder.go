package rpcprof

import (
	"sync"
	"time"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// minder is what a Profiler does once a second: it publishes the runtime's own
// metrics and answers requests from outside. It refers to the segment only, so
// that a Profiler nobody holds any more can go; it gives the segment back then.
type minder struct {
	seg     *segment.Writer
	control *control // nil: refused, or not possible
	stop    chan struct{}
	done    chan struct{}
	once    sync.Once
}

// mindEvery is how often it looks.
const mindEvery = time.Second

func newMinder(w *segment.Writer) *minder {
	return &minder{seg: w, stop: make(chan struct{}), done: make(chan struct{})}
}

func (m *minder) run() {
	defer close(m.done)
	defer m.control.close()
	r := newRuntimeReader(m.seg)
	tick := time.NewTicker(mindEvery)
	defer tick.Stop()
	for {
		r.publish()
		select {
		case <-m.stop:
			return
		case <-tick.C:
		}
		m.control.answer(m.stop)
	}
}

// close ends it and waits for that.
func (m *minder) close() {
	m.once.Do(func() { close(m.stop) })
	<-m.done
}

// abandon ends it and gives the segment back, once nothing refers to the Profiler.
func (m *minder) abandon() {
	m.once.Do(func() { close(m.stop) })
	go func() { // cleanups must not wait
		<-m.done
		m.seg.Unmap()
	}()
}
