package main

import (
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Every record of 10,000 pipelined calls says what the handlers and the client saw.
func TestStamps(t *testing.T) {
	const n, conns = 10_000, 3
	calls := make([]*truth, n)
	for i := range calls {
		calls[i] = &truth{name: [...]string{"fast", "slow", "fast", "fail", "none"}[i%5]}
	}
	of := func(req []byte) *truth { return calls[binary.LittleEndian.Uint64(req)] }
	s := start(t, map[string]handler{
		"fast": func(req []byte) ([]byte, error) {
			k := of(req)
			k.begin = rpcprof.Now()
			k.end = rpcprof.Now()
			return req, nil
		},
		"slow": func(req []byte) ([]byte, error) {
			k := of(req)
			k.begin = rpcprof.Now()
			time.Sleep(2 * time.Millisecond)
			k.end = rpcprof.Now()
			return req, nil
		},
		"fail": func(req []byte) ([]byte, error) {
			k := of(req)
			k.begin = rpcprof.Now()
			k.end = rpcprof.Now()
			return nil, errors.New("as it should")
		},
	})
	// The n calls are divided among the connections; each is known by its connection
	// and its place in what that one sent.
	var clients [conns]*client
	var sending sync.WaitGroup
	for i := range clients {
		c, err := dial(s.addr)
		if err != nil {
			t.Fatal(err)
		}
		clients[i] = c
		sending.Go(func() { sender(t, c, calls[i*n/conns:(i+1)*n/conns], i*n/conns) })
	}
	done := make(chan struct{})
	go func() { sending.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(time.Millisecond):
		}
		s.take(t)
	}
	at := map[uint32]map[uint64]int{} // connection, offset: call
	opened, err := s.reader.Conns()
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range clients {
		for _, o := range opened {
			if o.RemoteString() != c.nc.LocalAddr().String() {
				continue
			}
			at[o.ID] = map[uint64]int{}
			offset := uint64(0)
			for k := i * n / conns; k < (i+1)*n/conns; k++ {
				at[o.ID][offset] = k
				offset += uint64(calls[k].size)
			}
		}
		c.close()
	}
	s.stop()
	s.take(t)
	if len(s.records) != n || s.reader.Overwritten+s.reader.Torn+s.prof.Snapshot().Lost != 0 {
		t.Fatalf("%d records of %d; %d overwritten, %d torn, %d lost", len(s.records), n, s.reader.Overwritten, s.reader.Torn, s.prof.Snapshot().Lost)
	}
	methods, err := s.reader.Methods()
	if err != nil {
		t.Fatal(err)
	}
	walls := map[string]time.Duration{}
	for i := range s.records {
		r := &s.records[i]
		k, ok := at[r.Conn][r.Offset]
		if !ok {
			t.Fatalf("no request of connection %d begins at %d", r.Conn, r.Offset)
		}
		delete(at[r.Conn], r.Offset)
		name := methods[r.Method].NameString()
		walls[name] += time.Duration(r.Stamps[segment.Sent] - r.Stamps[segment.Recv])
		checkRecord(t, k, calls[k], r, name)
	}
	checkBatches(t, s.records)
	for _, m := range s.prof.Snapshot().Methods {
		var stages time.Duration
		for _, h := range m.Stages {
			stages += h.Sum
		}
		if stages != m.Total.Sum || m.Total.Sum != walls[m.Method] || len(m.Stages) != 5 {
			t.Errorf("%s: %d stages of %v altogether, calls of %v, records of %v", m.Method, len(m.Stages), stages, m.Total.Sum, walls[m.Method])
		}
	}
	if slots, err := s.reader.Slots(); err != nil || len(slots) != 0 {
		t.Errorf("%d slots are still in use, %v", len(slots), err)
	}
}

// checkRecord holds a record against what is known of its call.
func checkRecord(t *testing.T, k int, want *truth, r *segment.Record, name string) {
	t.Helper()
	outcome, method := segment.OK, want.name
	switch want.name {
	case "fail":
		outcome = segment.Error
	case "none":
		outcome, method = segment.Error, "_unknown"
	}
	if r.Outcome != outcome || name != method || int(r.BytesIn) != want.size || (want.err != nil) != (outcome != segment.OK) {
		t.Errorf("call %d of %s: %v, %s, %d bytes of %d, %v", k, want.name, r.Outcome, name, r.BytesIn, want.size, want.err)
	}
	s := r.Stamps
	stages, last := int64(0), want.sent
	for i := segment.Recv; i < segment.ServerStamps; i++ {
		if s[i] < last {
			t.Errorf("call %d: stamp %d at %d, after %d", k, i, s[i], last)
		}
		if last = s[i]; i > segment.Recv {
			stages += s[i] - s[i-1]
		}
	}
	if wall := s[segment.Sent] - s[segment.Recv]; stages != wall {
		t.Errorf("call %d: stages of %d ns in %d", k, stages, wall)
	}
	if s[segment.Write] > want.got {
		t.Errorf("call %d: its reply was there at %d and written at %d", k, want.got, s[segment.Write])
	}
	if want.begin != 0 && (s[segment.Handler] > want.begin || s[segment.Handled] < want.end) {
		t.Errorf("call %d: handler from %d to %d, by its stamps from %d to %d", k, want.begin, want.end, s[segment.Handler], s[segment.Handled])
	}
	if r.Release < s[segment.Handled] || r.Release > s[segment.Sent] {
		t.Errorf("call %d: released at %d, stamps %v", k, r.Release, s)
	}
}

// checkBatches: the calls of a read share its time and fill its places; replies that
// were written together went and were gone at the same times.
func checkBatches(t *testing.T, records []segment.Record) {
	t.Helper()
	type read struct{ conn, number uint32 }
	type batch struct {
		recv   int64
		size   uint16
		places map[uint16]bool
	}
	type write struct {
		conn uint32
		at   int64
	}
	batches, writes := map[read]*batch{}, map[write]int64{}
	for _, r := range records {
		k := read{r.Conn, r.Batch}
		b := batches[k]
		if b == nil {
			b = &batch{r.Stamps[segment.Recv], r.BatchSize, map[uint16]bool{}}
			batches[k] = b
		}
		if b.recv != r.Stamps[segment.Recv] || b.size != r.BatchSize || r.BatchPos >= r.BatchSize || b.places[r.BatchPos] {
			t.Errorf("read %v: place %d of %d at %d, and before %v", k, r.BatchPos, r.BatchSize, r.Stamps[segment.Recv], *b)
		}
		b.places[r.BatchPos] = true
		w := write{r.Conn, r.Stamps[segment.Write]}
		if sent, ok := writes[w]; ok && sent != r.Stamps[segment.Sent] {
			t.Errorf("write %v ended at %d and at %d", w, sent, r.Stamps[segment.Sent])
		}
		writes[w] = r.Stamps[segment.Sent]
	}
	for k, b := range batches {
		if len(b.places) != int(b.size) {
			t.Errorf("read %v: %d calls of %d", k, len(b.places), b.size)
		}
	}
	t.Logf("%d calls in %d reads and %d writes", len(records), len(batches), len(writes))
}

// A client that leaves while its calls run: each is recorded once, none as ok that
// was not written.
func TestBrokenConnection(t *testing.T) {
	const n = 50
	release := make(chan struct{})
	s := start(t, map[string]handler{"wait": func(req []byte) ([]byte, error) { <-release; return req, nil }})
	c, err := dial(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := c.send("wait", nil, make(chan reply, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		slots, err := s.reader.Slots()
		if err != nil || time.Now().After(end) {
			t.Fatalf("%d calls run, %v", len(slots), err)
		}
		if len(slots) == n+1 { // and the reader
			break
		}
	}
	c.close()
	close(release)
	s.stop()
	s.take(t)
	for _, r := range s.records {
		if (r.Outcome == segment.OK) != (r.Flags&segment.FlagCut == 0 && r.Stamps[segment.Sent] != 0) {
			t.Errorf("%v, stamps %v, flags %d", r.Outcome, r.Stamps, r.Flags)
		}
	}
	if slots, err := s.reader.Slots(); err != nil || len(slots) != 0 || len(s.records) != n {
		t.Errorf("%d records of %d; %d slots are still in use, %v", len(s.records), n, len(slots), err)
	}
}
