package rpcprof

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// The slowest calls of each method and minute, and the failed ones, are there when
// the ring has long been written over.
func TestKept(t *testing.T) {
	p := profilerFor(t, Config{})
	r := readerOf(t, p)
	ms := []*Method{p.Method("a"), p.Method("b")}
	rnd := rand.New(rand.NewPCG(1, 2))
	const minutes, each, failed = 3, 30_000, 5
	start := (Now()/minute + 1) * minute
	walls := map[[2]int64][]int64{}
	at := start
	for i := range minutes * each {
		k := i % 2
		wall := 1000 + rnd.Int64N(1_000_000)
		full(p, ms[k], nil, nil, [6]int64{at - wall, at - wall, at - wall, at, at, at})
		key := [2]int64{int64(k), at / minute}
		walls[key] = append(walls[key], wall)
		if i%(minutes*each/failed) == 0 {
			c := p.Begin(ms[0], nil, at-5)
			c.StampAt(Sent, at)
			c.End(Error)
		}
		at += minute / each
	}
	kept, err := r.Kept()
	if err != nil {
		t.Fatal(err)
	}
	got := map[[2]int64][]int64{}
	bad := 0
	ids := map[uint64]bool{}
	for _, rec := range kept {
		if ids[rec.Call] {
			t.Fatalf("call %x is there twice", rec.Call)
		}
		ids[rec.Call] = true
		if rec.Outcome != OK {
			bad++
			continue
		}
		k := int64(0)
		if rec.Method == ms[1].id {
			k = 1
		}
		key := [2]int64{k, rec.Stamps[segment.Sent] / minute}
		got[key] = append(got[key], rec.Stamps[segment.Sent]-rec.Stamps[segment.Recv])
	}
	if bad != failed {
		t.Errorf("%d failed calls, not %d", bad, failed)
	}
	for key, all := range walls {
		slices.Sort(all)
		slices.Sort(got[key])
		// The goroutine may have been on several Ps, each of which keeps the slowest it saw.
		if n := len(got[key]); n < segment.SlowKept || !slices.Equal(got[key][n-segment.SlowKept:], all[len(all)-segment.SlowKept:]) {
			t.Errorf("method %d, minute %d: kept %v, the slowest are %v", key[0], key[1], got[key], all[len(all)-segment.SlowKept:])
		}
	}
}

// More failures than there is room for push out the oldest, nothing else.
func TestKeptFailed(t *testing.T) {
	p := profilerFor(t, Config{})
	r := readerOf(t, p)
	m := p.Method("m")
	room := len(p.shards[0].Failed)
	for range 3 * room * len(p.shards) {
		p.Begin(m, nil, 0).End(Shed)
	}
	kept, err := r.Kept()
	if n := len(kept); err != nil || n < room || n > (room+segment.SlowKept*2)*len(p.shards) {
		t.Errorf("%d kept, room for %d a shard; %v", n, room, err)
	}
}

// A hundred thousand calls at once are all recorded.
func TestManyInFlight(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 50 MB")
	}
	const n = 100_000
	p := profilerFor(t, Config{})
	m := p.Method("m")
	calls := make([]*Call, n)
	for i := range calls {
		calls[i] = p.Begin(m, nil, 0)
		calls[i].Start(nil, 0)
	}
	for _, c := range calls {
		c.End(OK)
	}
	if s := p.Snapshot(); s.Lost != 0 || s.Methods[0].Total.Count != n {
		t.Errorf("%d lost, %d recorded", s.Lost, s.Methods[0].Total.Count)
	}
}
