package main

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// truth is what the test knows of a call without the stamps.
type truth struct {
	name       string
	size       int
	begin, end int64 // of the handler, read inside it
	sent, got  int64 // by the client: before it wrote the request, after it had the reply
	err        error
}

// service is a server under test, and what its Profiler records.
type service struct {
	prof    *rpcprof.Profiler
	reader  *segment.Reader
	srv     *server
	addr    string
	stop    func() // waits until every call has ended; the clients have left
	records []segment.Record
}

func start(t *testing.T, handlers map[string]handler) *service {
	t.Helper()
	s := &service{prof: rpcprof.New(rpcprof.Config{Service: t.Name()})}
	var err error
	if s.reader, err = s.prof.Reader(); err != nil {
		t.Fatal(err)
	}
	s.srv = newServer(s.prof)
	for name, h := range handlers {
		s.srv.handle(name, h)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skip("there is no loopback: ", err)
	}
	s.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- s.srv.serve(l.(*net.TCPListener)) }()
	s.stop = sync.OnceFunc(func() {
		_ = l.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		s.srv.conns.Wait()
	})
	t.Cleanup(func() {
		s.stop()
		_ = s.prof.Close()
	})
	return s
}

// take reads what has been recorded since the last time, before it is overwritten.
func (s *service) take(t *testing.T) {
	t.Helper()
	var err error
	if s.records, err = s.reader.Records(s.records); err != nil {
		t.Fatal(err)
	}
}

// sender sends many calls on a connection, several in one write.
func sender(t *testing.T, c *client, calls []*truth, first int) {
	window := make(chan struct{}, 200)
	var got sync.WaitGroup
	defer got.Wait()
	for len(calls) > 0 {
		n := min(1+rand.IntN(20), len(calls))
		for range n {
			window <- struct{}{}
		}
		var b []byte
		c.mu.Lock()
		for i, k := range calls[:n] {
			id := uint64(first + i)
			payload := binary.LittleEndian.AppendUint64(nil, id)
			frame := encodeRequest(c.seq+1, k.name, append(payload, make([]byte, rand.IntN(300))...))
			k.size = len(frame)
			b = append(b, frame...)
			ch := make(chan reply, 1)
			c.seq++
			c.waiting[c.seq] = ch
			got.Go(func() {
				r := <-ch
				k.got, k.err = rpcprof.Now(), r.err
				if r.err == nil && binary.LittleEndian.Uint64(r.payload) != id {
					t.Errorf("call %d has the reply of %d", id, binary.LittleEndian.Uint64(r.payload))
				}
				<-window
			})
			k.sent = rpcprof.Now()
		}
		_, err := c.nc.Write(b)
		c.mu.Unlock()
		if err != nil {
			t.Error(err)
			return
		}
		calls, first = calls[n:], first+n
	}
}
