package profile

import "github.com/rpcprof/toolkit/rpcprof/segment"

// cpuPerCall gives the mean thread CPU time of those of the calls, by index, of which it
// was measured, and how many those are. Which calls are measured has nothing to do
// with how long they take, so that the mean speaks for all.
func (x *evidence) cpuPerCall(calls []int) (mean int64, n int) {
	var sum float64
	for _, i := range calls {
		j := &x.calls[i]
		if j.Outcome != segment.Unfinished && j.ThreadCPU > 0 {
			sum += float64(j.ThreadCPU)
			n++
		}
	}
	if n == 0 {
		return 0, 0
	}
	return int64(sum / float64(n)), n
}
