package rpcprof

import (
	"sync/atomic"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// minute is for how long the slowest calls compete with each other.
const minute = 60_000_000_000 // ns

// keeper remembers, of one method in one shard, what its slowest calls of this
// minute took.
type keeper struct {
	least int64 // what a call must exceed to be kept, -1 while there is room
	until int64 // the minute's end; 0: none was recorded yet
	n     int
	walls [segment.SlowKept]int64
}

// keepSlow keeps a call among its method's slowest of the minute, in place of the
// fastest of them. With n calls in a minute it comes to that some 8 × ln(n) times.
// The method is not taken from r, which is in memory that others may write.
func (s *shard) keepSlow(k *keeper, method uint32, r *segment.Record, wall, at int64) {
	number := at / minute
	set := s.Slow(method, number)
	if at >= k.until {
		for i := range set.Records {
			mark64(&set.Records[i].Seq, 0)
		}
		set.Minute = number + 1
		k.least, k.n = -1, 0
		atomic.StoreInt64(&k.until, (number+1)*minute)
	}
	if at < k.until-minute {
		return // of a minute that is over
	}
	i := k.n
	if i < segment.SlowKept {
		k.n++
	} else {
		i = 0
		for n, w := range k.walls {
			if w < k.walls[i] {
				i = n
			}
		}
	}
	k.walls[i] = wall
	put(&set.Records[i], r)
	if k.n == segment.SlowKept {
		k.least = k.walls[0]
		for _, w := range k.walls {
			k.least = min(k.least, w)
		}
	}
}

// keepFailed keeps a call that did not end well in a ring of their own.
func (s *shard) keepFailed(r *segment.Record) {
	if len(s.Failed) == 0 {
		return
	}
	n := s.Head.Failed
	put(&s.Failed[n&uint64(len(s.Failed)-1)], r)
	store64(&s.Head.Failed, n+1)
}

// put writes a record over another. A reader that sees the same number before and
// after has not seen it half written.
func put(to, from *segment.Record) {
	mark64(&to.Seq, 0)
	r := *from
	r.Seq = 0
	*to = r
	store64(&to.Seq, from.Seq)
}
