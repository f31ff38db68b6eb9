package profile

import (
	"sort"

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
	out := make([]span, 0, 6)
	at, from := c.Stamps[segment.Recv], segment.StageQueue
	if arrive > 0 && arrive <= at {
		out = append(out, span{"recv", segment.StageRecv, arrive, at})
	}
	name := ""
	add := func(end int64) {
		out = append(out, span{name, from, at, max(at, end)})
		at, name = max(at, end), ""
	}
	for s := segment.Dequeue; s < segment.Stamps; s++ {
		stage := segment.Stage(s)
		if name == "" {
			name, from = stage.String(), stage
		} else {
			name += "+" + stage.String()
		}
		if c.Stamps[s] != 0 {
			add(c.Stamps[s])
		}
	}
	if c.Outcome == segment.Unfinished && windowEnd > at {
		// The stage after the last stamp is the one it is in.
		name = from.String()
		if n := len(out); n > 0 {
			name = (out[n-1].from + 1).String()
			from = out[n-1].from + 1
		}
		if from >= segment.Stages {
			name, from = segment.StageWrite.String(), segment.StageWrite
		}
		add(windowEnd)
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
