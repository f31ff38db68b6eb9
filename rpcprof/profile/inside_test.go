package profile

import (
	"context"
	"strings"
	"testing"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// What a handler does that has a name is found under its call, and a client's call
// is divided into its own stages, the wire and the server's stages.
func TestInside(t *testing.T) {
	p := rpcprof.New(rpcprof.Config{})
	defer p.Close()
	r, err := p.Reader()
	if err != nil {
		t.Fatal(err)
	}
	m, cm := p.Method("front.F/Get"), p.Client("back.B/Get")
	const us = 1000
	backend := p.Begin(p.Method("back.B/Get"), nil, 1_000_000)
	for s, at := range map[rpcprof.Stamp]int64{rpcprof.Dequeue: 1_160_000, rpcprof.Handler: 1_176_000, rpcprof.Handled: 1_976_000, rpcprof.Write: 1_992_000} {
		backend.StampAt(s, at)
	}
	timing := backend.Timing()
	backend.End(rpcprof.OK)

	c := p.Begin(m, nil, 0)
	ctx := c.Context(context.Background())
	c.Start(nil, 0)
	c.Stamp(rpcprof.Handler)
	g := rpcprof.Region(ctx, "fan-out")
	out := p.BeginClient(ctx, cm, 1_000_000_000)
	at := int64(1_000_000_000)
	for i, s := range []rpcprof.Stamp{rpcprof.Acquired, rpcprof.Encoded, rpcprof.Write, rpcprof.Sent} {
		at += int64(i+1) * us
		out.StampAt(s, at)
	}
	out.StampAt(rpcprof.Received, at+1200*us)
	out.StampAt(rpcprof.Woken, at+1210*us)
	out.ServerTiming(timing)
	out.End(rpcprof.OK)
	g.End()
	c.Stamp(rpcprof.Handled)
	c.Stamp(rpcprof.Write)
	c.Stamp(rpcprof.Sent)
	c.End(rpcprof.OK)

	methods, err := r.Methods()
	if err != nil {
		t.Fatal(err)
	}
	recs, err := r.Records(nil)
	if err != nil {
		t.Fatal(err)
	}
	e := &Evidence{Window: Window{StartNS: 1, EndNS: rpcprof.Now()}}
	e.Add(&Source{Methods: methods, Records: recs})
	prof := Join(e, Options{SLONS: 1})
	seen := 0
	for _, m := range prof.Methods {
		switch {
		case m.Method == "front.F/Get":
			seen++
			got := map[string]int{}
			for _, in := range m.Slow.Inside {
				got[in.Kind+" "+in.Name] += in.Count
			}
			if len(got) != 2 || got["region fan-out"] != 1 || got["client back.B/Get"] != 1 {
				t.Errorf("inside the handler: %v", got)
			}
		case m.Side == "client":
			seen++
			for stage, want := range map[string]int64{
				"acquire": us, "encode": 2 * us, "queue": 3 * us, "write": 4 * us, "wire+recv": 208 * us, "wakeup": 10 * us,
				"server.queue": 160 * us, "server.decode": 16 * us, "server.handler": 800 * us, "server.encode": 16 * us,
			} {
				elsewhere := strings.HasPrefix(stage, "wire") || strings.HasPrefix(stage, "server")
				if got := m.Slow.Stages[stage].Causes[string(GoNet)]; elsewhere != (got == want) {
					t.Errorf("%s: %d of %d wait for the reply", stage, got, want)
				}
				if got := m.Slow.Stages[stage].WallNS; got != want {
					t.Errorf("%s took %d, not %d", stage, got, want)
				}
			}
		}
	}
	if seen != 2 {
		t.Errorf("methods %+v", prof.Methods)
	}
}

// Where the server said nothing, or the write's end was not seen before the reply,
// the stages say what they are made of.
func TestClientStages(t *testing.T) {
	all := [segment.Stamps]int64{100, 110, 120, 130, 140, 240, 250, 260}
	noSent := all
	noSent[segment.ClientSent] = 0
	cut := [segment.Stamps]int64{100, 110, 120, 130, 140, 900}
	for _, tt := range []struct {
		name    string
		c       Call
		want    string
		longest string
	}{
		{"plain", Call{Stamps: all}, "acquire encode queue write wire+server wakeup decode", "wire+server"},
		{"write's end unseen", Call{Stamps: noSent, ServerKnown: true, Server: segment.Timing{Call: 1, Handler: 32}}, "acquire encode queue write+wire+recv server.queue server.decode server.handler server.encode wakeup decode", "write+wire+recv"},
		{"server longer than it can be", Call{Stamps: all, ServerKnown: true, Server: segment.Timing{Call: 1, Handler: 1 << 40}}, "acquire encode queue write wire+recv server.queue server.decode server.handler server.encode wakeup decode", "server.handler"},
		{"given up", Call{Stamps: cut, Outcome: segment.Expired, Cut: true}, "acquire encode queue write wire+server", "wire+server"},
		{"in flight", Call{Stamps: [segment.Stamps]int64{100, 110}}, "acquire encode", "encode"},
	} {
		tt.c.Side = segment.Client
		if tt.c.Outcome == segment.Unfinished && tt.name != "in flight" {
			tt.c.Outcome = segment.OK
		}
		var names string
		var longest span
		at := tt.c.Stamps[0]
		for _, s := range spansOf(&tt.c, 0, 1000) {
			if s.start != at || s.end < s.start {
				t.Errorf("%s: %s begins at %d, not %d", tt.name, s.stage, s.start, at)
			}
			at = s.end
			names += " " + s.stage
			if s.end-s.start > longest.end-longest.start {
				longest = s
			}
		}
		if names[1:] != tt.want || longest.stage != tt.longest {
			t.Errorf("%s: stages%s, the longest is %s", tt.name, names, longest.stage)
		}
	}
}
