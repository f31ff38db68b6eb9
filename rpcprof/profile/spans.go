package profile

import (
	"sort"
	"strings"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// span is one stage of one call.
type span struct {
	stage      string
	from       segment.Stage // the first of the stages it is made of
	start, end int64
}

// joined is a call with its stages and what is known of each.
type joined struct {
	*Call
	spans []span
	parts []part // exact, by start; they do not overlap
	wall  int64
	whole bool // began inside the window
}

func (j *joined) start() int64 { return j.spans[0].start }

// spansOf cuts a call into stages. Where a stamp was not taken the stages around
// it become one, named after both: "queue+decode". A call that has not ended
// ends in the stage it is in.
func spansOf(c *Call, arrive, windowEnd int64) []span {
	out := make([]span, 0, 8)
	at, from := c.Stamps[0], segment.Stage(1)
	if c.Side == segment.Server && arrive > 0 && arrive <= at {
		out = append(out, span{"recv", segment.StageRecv, arrive, at})
	}
	n := segment.StampsOf(c.Side)
	name := ""
	add := func(end int64) {
		end = max(at, end)
		if before, ok := strings.CutSuffix(name, wireName); ok && c.ServerKnown {
			out = withServer(out, span{before + "wire+recv", from, at, end}, &c.Server)
		} else {
			out = append(out, span{name, from, at, end})
		}
		at, name = end, ""
	}
	for s := segment.Stamp(1); s < n; s++ {
		stage := segment.Stage(s)
		if name == "" {
			name, from = segment.StageName(c.Side, stage), stage
		} else {
			name += "+" + segment.StageName(c.Side, stage)
		}
		if c.Stamps[s] != 0 {
			add(c.Stamps[s])
		}
	}
	if c.Outcome == segment.Unfinished && windowEnd > at {
		// The stage after the last stamp is the one it is in.
		in := segment.Stage(1)
		for s := segment.Stamp(1); s < n; s++ {
			if c.Stamps[s] != 0 {
				in = segment.Stage(s) + 1
			}
		}
		in = min(in, segment.Stage(n)-1)
		name, from = segment.StageName(c.Side, in), in
		add(windowEnd)
	}
	return out
}

var wireName = segment.StageName(segment.Client, segment.StageWire)

// withServer divides the time until the reply by what the server said. When within
// it the server had the call is not known: its stages are put at the end. What is
// left is the wire and, at the server, the wait in the receive queue, the read and
// the reply's write. Time that the server worked already while the request's write
// had not returned counts as that write.
func withServer(out []span, s span, t *segment.Timing) []span {
	end := s.end
	s.end -= min(t.Total(), end-s.start)
	out = append(out, s)
	at := s.end
	for i, d := range [...]int64{t.Queue, t.Decode, t.Handler, t.Encode} {
		stage := segment.StageQueue + segment.Stage(i)
		to := min(at+d, end)
		if stage == segment.StageEncode {
			to = end
		}
		out = append(out, span{"server." + segment.StageName(segment.Server, stage), segment.StageWire, at, to})
		at = to
	}
	return out
}

// arrivals finds when a request's first byte came in.
type arrivals map[uint64][]Arrival

func indexArrivals(all []Arrival) arrivals {
	out := arrivals{}
	for _, a := range all {
		out[a.Cookie] = append(out[a.Cookie], a)
	}
	for _, as := range out {
		sort.Slice(as, func(i, k int) bool {
			return as[i].Received < as[k].Received || as[i].Received == as[k].Received && as[i].At < as[k].At
		})
	}
	return out
}

// at gives the first data-ready with more bytes received than the request's
// offset, 0 when it was not seen.
func (a arrivals) at(cookie, offset uint64) int64 {
	as := a[cookie]
	if offset == segment.NoOffset || cookie == 0 {
		return 0
	}
	i := sort.Search(len(as), func(i int) bool { return as[i].Received > offset })
	// The first one seen at all may have been preceded by one before the window.
	if i == len(as) || (i == 0 && offset > 0) {
		return 0
	}
	return as[i].At
}
