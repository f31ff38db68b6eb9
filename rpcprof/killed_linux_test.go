package rpcprof

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// killedChild in the environment makes the test binary a service that records until
// it is killed.
const killedChild = "RPCPROF_TEST_KILLED_CHILD"

func init() {
	if os.Getenv(killedChild) != "" {
		recordForEver()
	}
}

// recordForEver records calls of every kind on several goroutines. Each call's
// fields repeat one byte, so that a record mixed of two shows.
func recordForEver() {
	p := New(Config{Service: "killed", Methods: 16})
	served := []*Method{p.Method("a.A/One"), p.Method("b.B/Two")}
	made := p.Client("c.C/Three")
	q := p.Queue()
	for i := range 4 {
		go func() {
			conn := p.Conn(nil)
			reader := conn.Reader()
			defer reader.Close()
			worker := q.Worker()
			for n := uint64(i); ; n += 4 {
				recordOne(p, served[n%2], made, conn, worker, byte(n%251+1))
			}
		}()
	}
	fmt.Println("ready")
	select {}
}

func recordOne(p *Profiler, m, made *Method, conn *Conn, worker *Role, b byte) {
	var trace [16]byte
	for i := range trace {
		trace[i] = b
	}
	span := [8]byte(trace[:8])
	c := p.Begin(m, conn, 0)
	c.Request(int(b), int64(b), uint32(b), 0, 1)
	c.Trace(trace, span)
	c.Start(worker, 0)
	c.Stamp(Handler)
	ctx := context.Background()
	if b%16 == 0 {
		ctx = c.Context(ctx)
		Go(ctx, func() {})
	}
	region := Region(ctx, "region")
	out := p.BeginClient(ctx, made, 0)
	out.Request(int(b), -1, uint32(b), 0, 1)
	out.Trace(trace, span)
	for s := Acquired; s <= Encoded; s++ {
		out.Stamp(s)
	}
	out.Stamp(Write)
	out.Stamp(Sent)
	if b%5 == 0 {
		out.End(Cancelled)
	} else {
		out.Stamp(Received)
		out.Stamp(Woken)
		out.ServerTiming([24]byte{0: b, 8: b, 12: b, 16: b, 20: b})
		out.Reply(int(b))
		out.End(OK)
	}
	region.End()
	if b%7 == 0 {
		c.End(Expired)
		return
	}
	c.Stamp(Handled)
	c.Release(0)
	c.Stamp(Write)
	c.Stamp(Sent)
	c.Reply(int(b))
	if b%3 == 0 {
		c.End(Error)
		return
	}
	c.End(OK)
}

// A service may be killed at any moment: what it has recorded is whole, and its
// histograms hold at most one call a shard beyond its records.
func TestKilled(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	total := 0
	for range rounds {
		total += killOne(t)
		if t.Failed() {
			return
		}
	}
	if total == 0 {
		t.Error("nothing was recorded in any round")
	}
	t.Logf("%d records in %d rounds", total, rounds)
}

func killOne(t *testing.T) int {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), killedChild+"=1")
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Skip(err)
	}
	watchdog := time.AfterFunc(patience, func() { _ = c.Process.Kill() })
	defer watchdog.Stop()
	gone := false
	kill := func() {
		if !gone {
			gone = true
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	defer kill()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	files, err := segment.Find(c.Process.Pid)
	if err != nil || len(files) != 1 {
		t.Skip("the child's segment cannot be read here: ", err)
	}
	r := files[0]
	defer r.Close()
	var recs []segment.Record
	for range rand.IntN(4) { // reading goes on meanwhile
		time.Sleep(time.Duration(rand.Int64N(int64(4 * time.Millisecond))))
		if recs, err = r.Records(recs); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Kept(); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Duration(rand.Int64N(int64(3 * time.Millisecond))))
	kill()
	if recs, err = r.Records(recs); err != nil {
		t.Fatal(err)
	}
	checkKilled(t, r.Reader, recs)
	return len(recs)
}

func checkKilled(t *testing.T, r *segment.Reader, recs []segment.Record) {
	t.Helper()
	ms, err := r.Methods()
	if err != nil {
		t.Fatal(err)
	}
	if r.Torn != 0 || r.Unknown != 0 {
		t.Errorf("%d records torn, %d unknown", r.Torn, r.Unknown)
	}
	seen := map[uint64]bool{}
	for i := range recs {
		if seen[recs[i].Call] {
			t.Errorf("call %x is there twice", recs[i].Call)
		}
		seen[recs[i].Call] = true
		checkWhole(t, ms, &recs[i])
	}
	kept, err := r.Kept()
	if err != nil {
		t.Fatal(err)
	}
	for i := range kept {
		checkWhole(t, ms, &kept[i])
		if i > 0 && kept[i].Call == kept[i-1].Call {
			t.Errorf("call %x is kept twice", kept[i].Call)
		}
	}
	counted := uint64(0)
	for id := range uint32(len(ms)) {
		hs, err := r.Histograms(id)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range hs[segment.HistTotal][1:] {
			counted += n
		}
	}
	h := r.Header()
	recorded := uint64(len(recs)) + r.Overwritten
	if counted < recorded || counted > recorded+uint64(h.ShardCap) {
		t.Errorf("%d calls in the histograms and %d in the rings of %d shards", counted, recorded, h.ShardCap)
	}
	slots, err := r.Slots()
	if err != nil || len(slots) > int(h.SlotCap) {
		t.Errorf("%d slots, %v", len(slots), err)
	}
	if _, err := r.Runtime(); err != nil {
		t.Error(err)
	}
}

// checkWhole checks that a record is of one call.
func checkWhole(t *testing.T, ms []segment.Method, r *segment.Record) {
	t.Helper()
	if int(r.Method) >= len(ms) {
		t.Errorf("method %d of %d: %+v", r.Method, len(ms), r)
		return
	}
	side := ms[r.Method].Side
	at := r.Stamps[0]
	for i, s := range r.Stamps {
		if s != 0 && (s < at || i >= int(segment.StampsOf(side))) {
			t.Errorf("%s: stamp %d is out of order: %+v", side, i, r)
		}
		at = max(at, s)
	}
	if side > segment.Client {
		if r.Outcome != OK || r.Parent == 0 && ms[r.Method].NameString() == "region" || r.Stamps[segment.Ended] == 0 {
			t.Errorf("%s: %+v", side, r)
		}
		return
	}
	b := byte(r.BytesIn)
	for _, x := range append(r.TraceID[:], r.SpanID[:]...) {
		if x != b || r.Batch != uint32(b) {
			t.Errorf("%s: a record of two calls: %+v", side, r)
			return
		}
	}
	if cut := r.Flags&segment.FlagCut != 0; cut != (side == segment.Client && b%5 == 0 || side == segment.Server && b%7 == 0) {
		t.Errorf("%s: call %d is cut or is not: %+v", side, b, r)
	}
	if st, ok := r.ServerTiming(); side == segment.Client && ok != (b%5 != 0) || ok && (st.Call != uint64(b) || st.Total() != 4*16*int64(b)) {
		t.Errorf("%s: the server said %+v: %+v", side, st, r)
	}
}
