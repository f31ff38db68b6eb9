package profile

import "github.com/rpcprof/toolkit/rpcprof/segment"

// lostIn counts a call that expired or was cancelled under the stage that consumed
// most of its time.
func (m *Method) lostIn(j *joined) {
	if j.Outcome != segment.Expired && j.Outcome != segment.Cancelled {
		return
	}
	var most span
	for i, s := range j.spans {
		if i == 0 || s.end-s.start > most.end-most.start {
			most = s
		}
	}
	if m.LostIn == nil {
		m.LostIn = map[string]map[string]int{}
	}
	o := j.Outcome.String()
	if m.LostIn[o] == nil {
		m.LostIn[o] = map[string]int{}
	}
	m.LostIn[o][most.stage]++
}
