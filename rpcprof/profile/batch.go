package profile

import (
	"cmp"
	"slices"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Batch tells how many messages a read brought and how long each waited in the
// queue, by its position in the read. Of that, the wait for mates is the time in
// which messages of the same read had the worker that then served it, or without
// workers the reader: it would not have passed had the message come alone.
type Batch struct {
	MessagesPerRead  float64 `json:"messages_per_read"`
	WaitByPositionNS []int64 `json:"wait_by_position_ns"` // mean; the last entry is for all further positions
	MatesWaitNS      []int64 `json:"mates_wait_by_position_ns"`
}

// positions is how many positions are told apart.
const positions = 8

// batches sums up how long messages of one read waited, by position.
func (x *evidence) batches(p *Profile) {
	var sum, mates, n [positions]int64
	var calls, reads float64
	groups := map[[2]uint32][]int{}
	for i := range x.calls {
		j := &x.calls[i]
		if j.Stamps[segment.Dequeue] == 0 || j.BatchOf == 0 || j.Side != segment.Server {
			continue
		}
		if j.BatchOf > 1 {
			k := [2]uint32{j.Conn, j.Batch}
			groups[k] = append(groups[k], i)
		}
		if !j.whole {
			continue
		}
		calls++
		reads += 1 / float64(j.BatchOf)
		k := min(int(j.BatchPos), positions-1)
		sum[k] += j.Stamps[segment.Dequeue] - j.Stamps[segment.Recv]
		n[k]++
	}
	for _, g := range groups {
		x.mates(g, &mates)
	}
	p.Batch.WaitByPositionNS, p.Batch.MatesWaitNS = []int64{}, []int64{}
	if reads > 0 {
		p.Batch.MessagesPerRead = calls / reads
	}
	for k := range sum {
		if n[k] == 0 {
			break
		}
		p.Batch.WaitByPositionNS = append(p.Batch.WaitByPositionNS, sum[k]/n[k])
		p.Batch.MatesWaitNS = append(p.Batch.MatesWaitNS, mates[k]/n[k])
	}
}

// mates adds up, for the messages of one read, how long those that the same worker
// took before them had it.
func (x *evidence) mates(group []int, sum *[positions]int64) {
	slices.SortFunc(group, func(a, b int) int {
		ja, jb := &x.calls[a], &x.calls[b]
		return cmp.Or(cmp.Compare(ja.Stamps[segment.Dequeue], jb.Stamps[segment.Dequeue]), cmp.Compare(ja.BatchPos, jb.BatchPos), cmp.Compare(ja.ID, jb.ID))
	})
	type busy struct{ sum, until int64 } // how long mates had it, and the end of the last
	held := map[uint32]busy{}
	for _, i := range group {
		j := &x.calls[i]
		from, to := j.Stamps[segment.Recv], j.Stamps[segment.Dequeue]
		b := held[j.Worker]
		if j.whole {
			over := max(0, b.until-to) // a mate that is not released yet
			sum[min(int(j.BatchPos), positions-1)] += min(max(0, b.sum-over), to-from)
		}
		end := j.Release
		if end == 0 {
			end = j.spans[len(j.spans)-1].end
		}
		if d := end - max(to, b.until); d > 0 {
			b.sum += d
			b.until = end
		}
		held[j.Worker] = b
	}
}
