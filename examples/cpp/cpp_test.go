//go:build linux

// Package cpp holds no Go but these tests: that a C++ service's segment is what the Go
// reader takes it for.
package cpp

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

const (
	get     = "cpp.Store/Get"
	put     = "cpp.Store/Put"
	workers = 3
)

// drive makes calls on some connections, and gives how many of each method and outcome
// must have been recorded, beside the connections.
func drive(t *testing.T, s *server) (clients []*client, want map[string]int) {
	t.Helper()
	want = map[string]int{}
	for i := range 3 {
		c := s.dial()
		key := fmt.Sprintf("key%d", i)
		if r := c.call(put, key+"=value"); r.kind != 2 {
			t.Fatalf("Put was answered with %v", r)
		}
		for range 20 {
			c.send(get, slices.Repeat([]string{key}, 5)...)
			for _, r := range c.receive(5) {
				if r != (reply{2, "value"}) {
					t.Fatalf("Get was answered with %v", r)
				}
			}
		}
		if r := c.call(get, "nobody's"); r.kind != 3 || !strings.Contains(r.body, "no such key") {
			t.Fatalf("Get of no key was answered with %v", r)
		}
		if r := c.call("cpp.Store/None", ""); r.kind != 3 {
			t.Fatalf("no method answered with %v", r)
		}
		want[put+" ok"]++
		want[get+" ok"] += 100
		want[get+" error"]++
		clients = append(clients, c)
	}
	return clients, want
}

func TestHeaderAndTables(t *testing.T) {
	s := start(t, "--workers", fmt.Sprint(workers))
	h := s.h
	if h.Version != segment.Version || h.Flags != segment.FlagThreads || int(h.PID) != s.pid || h.ServiceString() != "cpp-store" || h.StartNS <= 0 || h.DegradedString() != "" {
		t.Errorf("header %+v", h)
	}
	var sections []string
	for i := range h.Sections[:h.SectionCount] {
		sections = append(sections, h.Sections[i].NameString())
	}
	if got := strings.Join(sections, " "); got != "methods connections slots index shards" || len(s.seg.Skipped()) != 0 {
		t.Errorf("sections %s, skipped %v", got, s.seg.Skipped())
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", s.pid))
	if err != nil {
		t.Fatal(err)
	}
	if at := fmt.Sprintf("%x-%x rw-s 00000000 ", h.Base, h.Base+h.FileSize); !strings.Contains(string(maps), at) {
		t.Errorf("no mapping %s in\n%s", at, maps)
	}
	if s.method("_other") != 0 || s.method(get) == s.method(put) {
		t.Error("methods are mixed up")
	}

	c := s.dial()
	c.call(put, "a=b")
	cs, err := s.seg.Conns()
	if err != nil || len(cs) != 1 || cs[0].Open != 1 || cs[0].Cookie == 0 || cs[0].OpenedNS < h.StartNS ||
		cs[0].LocalString() != s.addr || cs[0].RemoteString() != c.nc.LocalAddr().String() {
		t.Fatalf("connections %+v, %v", cs, err)
	}
	_ = c.nc.Close()
	await(t, "the connection is closed and its roles are gone", func() bool {
		cs, _ := s.seg.Conns()
		slots, _ := s.seg.Slots()
		return len(cs) == 1 && cs[0].Open == 0 && len(slots) == workers
	})

	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if _, _, _, closed, err := s.seg.Counts(); !closed || err != nil {
		t.Errorf("closed %v, %v", closed, err)
	}
}

// Every call that was answered is recorded, once and with what is true of it.
func TestCallsAreRecorded(t *testing.T) {
	s := start(t, "--workers", fmt.Sprint(workers))
	clients, want := drive(t, s)
	total := 0
	for _, n := range want {
		total += n
	}
	var recs []segment.Record
	await(t, "all calls are recorded", func() bool {
		var err error
		if recs, err = s.seg.Records(recs); err != nil {
			t.Fatal(err)
		}
		return len(recs) >= total
	})
	if lost, noSlot, noIndex, _, err := s.seg.Counts(); lost+noSlot+noIndex+s.seg.Torn+s.seg.Overwritten != 0 || err != nil {
		t.Errorf("lost %d, without slot %d, without entry %d, torn %d, overwritten %d, %v", lost, noSlot, noIndex, s.seg.Torn, s.seg.Overwritten, err)
	}
	ms, err := s.seg.Methods()
	if err != nil {
		t.Fatal(err)
	}
	roles := s.roles()
	got, ids := map[string]int{}, map[uint64]bool{}
	for i := range recs {
		r := &recs[i]
		got[ms[r.Method].NameString()+" "+r.Outcome.String()]++
		ids[r.Call] = true
		for k, at := range r.Stamps {
			if (at == 0) != (k >= int(segment.ServerStamps)) || at != 0 && at < s.h.StartNS {
				t.Fatalf("stamps %v", r.Stamps)
			}
		}
		if r.Release < r.Stamps[segment.Handled] || r.Queue != 1 || int(r.Workers) != workers || r.BatchPos >= r.BatchSize || r.Batch == 0 || r.BytesOut < 13 {
			t.Fatalf("record %+v", r)
		}
		worker, ok := roles[r.Worker]
		if !ok || worker.Kind != segment.KindWorker || worker.TID != r.HandlerTID || r.Goid != uint64(r.HandlerTID) {
			t.Fatalf("record %+v of worker %+v", r, worker)
		}
		if s.comm(r.RecvTID) != "reader" || s.comm(r.HandlerTID) != "worker" || s.comm(r.WriteTID) != "writer" {
			t.Fatalf("threads %q, %q and %q", s.comm(r.RecvTID), s.comm(r.HandlerTID), s.comm(r.WriteTID))
		}
	}
	if len(ids) != total || len(recs) != total || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%d records, %d ids: %v where %v was called", len(recs), len(ids), got, want)
	}
	checkConns(t, s, clients, recs, roles)
	checkHistograms(t, s, recs)
	checkKept(t, s, recs)
}

// roles reads the role slots and checks that the index leads to them.
func (s *server) roles() map[uint32]segment.Slot {
	s.t.Helper()
	slots, err := s.seg.Slots()
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[uint32]segment.Slot{}
	for _, r := range slots {
		out[r.Index] = r.Slot
		if r.G != uint64(r.TID) || r.Goid != r.G || s.comm(r.TID) != r.Kind.String() || r.Stamps[0] < s.h.StartNS {
			s.t.Errorf("role %+v of thread %q", r, s.comm(r.TID))
		}
		if to, ok := follow(s.t, &s.h, s.raw, r.TID); !ok || to != r.Index {
			s.t.Errorf("thread %d leads to slot %d, %v, not to its role %d", r.TID, to, ok, r.Index)
		}
	}
	return out
}

// checkConns: the requests of a connection follow each other in its bytes. What is
// missing between them is the call of a method that is not there.
func checkConns(t *testing.T, s *server, clients []*client, recs []segment.Record, roles map[uint32]segment.Slot) {
	t.Helper()
	cs, err := s.seg.Conns()
	if err != nil || len(cs) != len(clients) {
		t.Fatalf("%d connections, %v", len(cs), err)
	}
	unknown := int64(4 + 9 + 2 + len("cpp.Store/None") + 8)
	for _, conn := range cs {
		if roles[conn.Reader].Kind != segment.KindReader || roles[conn.Writer].Kind != segment.KindWriter || roles[conn.Reader].Conn != conn.ID {
			t.Errorf("connection %+v has roles %+v and %+v", conn, roles[conn.Reader], roles[conn.Writer])
		}
		var mine []segment.Record
		for _, r := range recs {
			if r.Conn == conn.ID {
				mine = append(mine, r)
			}
		}
		slices.SortFunc(mine, func(a, b segment.Record) int { return cmp.Compare(a.Offset, b.Offset) })
		at := uint64(0)
		for _, r := range mine {
			if r.Offset != at {
				t.Fatalf("request at %d where %d bytes came before", r.Offset, at)
			}
			at += uint64(r.BytesIn)
		}
		i := slices.IndexFunc(clients, func(c *client) bool { return c.nc.LocalAddr().String() == conn.RemoteString() })
		if i < 0 || int64(at)+unknown != clients[i].sent {
			t.Errorf("connection %s: %d bytes", conn.RemoteString(), at)
		}
	}
}

func checkHistograms(t *testing.T, s *server, recs []segment.Record) {
	t.Helper()
	want := map[uint32]*[segment.HistsPerMethod]segment.Histogram{}
	for _, m := range []string{"_other", get, put} {
		want[s.method(m)] = new([segment.HistsPerMethod]segment.Histogram)
	}
	add := func(h *segment.Histogram, ns int64) {
		h[0] += uint64(ns)
		h[1+segment.BucketFor(ns)]++
	}
	for _, r := range recs {
		h := want[r.Method]
		for k := segment.Dequeue; k < segment.ServerStamps; k++ {
			add(&h[k-1], r.Stamps[k]-r.Stamps[k-1])
		}
		add(&h[segment.HistTotal], r.Stamps[segment.Sent]-r.Stamps[segment.Recv])
	}
	for m, w := range want {
		if got, err := s.seg.Histograms(m); err != nil || *got != *w {
			t.Errorf("histograms of method %d differ from its records, %v", m, err)
		}
	}
}

// checkKept: all that failed, and the slowest of each method.
func checkKept(t *testing.T, s *server, recs []segment.Record) {
	t.Helper()
	kept, err := s.seg.Kept()
	if err != nil {
		t.Fatal(err)
	}
	has := map[segment.Record]bool{}
	for _, r := range kept {
		has[r] = true
	}
	took := func(r segment.Record) int64 { return r.Stamps[segment.Sent] - r.Stamps[segment.Recv] }
	slowest := map[uint32]segment.Record{}
	for _, r := range recs {
		if r.Outcome != segment.OK && !has[r] {
			t.Errorf("a failed call is not kept: %+v", r)
		}
		if took(r) > took(slowest[r.Method]) {
			slowest[r.Method] = r
		}
	}
	for _, r := range slowest {
		if !has[r] {
			t.Errorf("the slowest call is not kept: %+v", r)
		}
	}
	if len(kept) >= len(recs) {
		t.Errorf("%d calls are kept of %d", len(kept), len(recs))
	}
}

// A call that hangs is seen hanging, by its thread too; and still when the service is
// killed meanwhile.
func TestInFlight(t *testing.T) {
	s := start(t, "--workers", "1", "--fault", "pool", "--fault-ms", "1500")
	c := s.dial()
	c.send(put, "a=b")
	var calls map[string]segment.SlotState
	look := func() map[string]segment.SlotState {
		slots, err := s.seg.Slots()
		if err != nil {
			t.Fatal(err)
		}
		ms, _ := s.seg.Methods()
		calls = map[string]segment.SlotState{}
		for _, x := range slots {
			if x.Kind == segment.KindCall {
				calls[ms[x.Method].NameString()] = x
			}
		}
		return calls
	}
	await(t, "Put is in its handler", func() bool { return look()[put].Stage == segment.StageHandler })
	c.send(get, "a")
	await(t, "Get is in the queue", func() bool { return look()[get].Stage == segment.StageQueue })
	slow, behind := calls[put], calls[get]
	if s.comm(slow.TID) != "worker" || slow.G != uint64(slow.TID) || slow.Goid != slow.G || slow.Queue != 1 || slow.Since() != slow.Stamps[segment.Handler] {
		t.Errorf("slot %+v of thread %q", slow, s.comm(slow.TID))
	}
	if behind.G != 0 || behind.TID != 0 || behind.Queue != 1 || behind.Conn != slow.Conn || behind.Call == slow.Call || behind.Since() != behind.Stamps[segment.Recv] {
		t.Errorf("slot %+v behind %+v", behind, slow)
	}
	if to, ok := follow(t, &s.h, s.raw, slow.TID); !ok || to != slow.Index {
		t.Errorf("thread %d leads to slot %d, %v, not to the call's %d", slow.TID, to, ok, slow.Index)
	}

	c.receive(2)
	await(t, "both calls have ended", func() bool { return len(look()) == 0 })
	s.roles() // where the worker's thread leads to now

	c.send(put, "a=c")
	await(t, "another Put is in its handler", func() bool { return look()[put].Stage == segment.StageHandler })
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	if x := look()[put]; x.Stage != segment.StageHandler || x.TID != slow.TID {
		t.Errorf("after the kill: %+v", x)
	}
	recs, err := s.seg.Records(nil)
	if err != nil || len(recs) != 2 || s.seg.Torn != 0 {
		t.Errorf("after the kill: %d records, %d torn, %v", len(recs), s.seg.Torn, err)
	}
	if _, _, _, closed, err := s.seg.Counts(); closed || err != nil {
		t.Errorf("after the kill: closed %v, %v", closed, err)
	}
}
