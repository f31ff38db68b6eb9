package blame

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/rpcprof/toolkit/rpcprof/profile"
)

// blame names the culprit and the line, and follows the chain to its end.
func (j *judge) blame(v *Verdict, set *profile.Set) {
	v.Chain = []Link{}
	v.Culprit, v.Location = largest(v.Stage, v.Cause, set)
	seen := map[string]bool{}
	for culprit := v.Culprit; v.Cause == string(profile.Behind) && culprit != "" && len(v.Chain) < maxChain && !seen[culprit]; {
		seen[culprit] = true
		l, ok := j.holding(culprit)
		if !ok {
			return
		}
		v.Chain = append(v.Chain, l)
		if l.Cause != string(profile.Behind) {
			return
		}
		culprit = l.Culprit
	}
}

// largest names who has most of one stage and cause, and the line with most of that.
// What has neither name nor line was not seen; it does not say that it was another.
// But if less than minShare has one, that is too little to accuse anybody.
func largest(stage, cause string, sets ...*profile.Set) (culprit, location string) {
	var sum, seen int64
	by := map[string]int64{}
	lines := map[string]map[string]int64{}
	for _, s := range sets {
		for i := range s.Details {
			d := &s.Details[i]
			if d.Stage != stage || string(d.Cause) != cause {
				continue
			}
			sum += d.NS
			if d.Culprit == "" && d.Location == "" {
				continue
			}
			seen += d.NS
			by[d.Culprit] += d.NS
			if lines[d.Culprit] == nil {
				lines[d.Culprit] = map[string]int64{}
			}
			lines[d.Culprit][d.Location] += d.NS
		}
	}
	if seen == 0 || float64(seen) < minShare*float64(sum) {
		return "", ""
	}
	culprit = most(by)
	return culprit, most(lines[culprit])
}

// most is the key with the largest sum, the first of them where several have it.
func most(sums map[string]int64) string {
	var best string
	for i, k := range slices.Sorted(maps.Keys(sums)) {
		if i == 0 || sums[k] > sums[best] {
			best = k
		}
	}
	return best
}

// holding says what a method's calls do while they hold a worker: the largest stage
// and cause from decode to encode, of the slow calls too, which may be the few that
// hold it long.
func (j *judge) holding(method string) (Link, bool) {
	i := slices.IndexFunc(j.p.Methods, func(m profile.Method) bool { return m.Method == method && m.Side != "client" })
	if i < 0 {
		return Link{}, false
	}
	m := &j.p.Methods[i]
	type cell struct{ stage, cause string }
	by := map[cell]int64{}
	for _, s := range []*profile.Set{&m.Typical, &m.Slow} {
		for stage, st := range s.Stages {
			if !strings.Contains(stage, "handler") && !strings.Contains(stage, "decode") && !strings.Contains(stage, "encode") {
				continue
			}
			for cause, ns := range st.Causes {
				by[cell{stage, cause}] += ns
			}
		}
	}
	var best cell
	for c, ns := range by {
		if k := cmp.Compare(ns, by[best]); k > 0 || k == 0 && cmp.Or(cmp.Compare(c.stage, best.stage), cmp.Compare(c.cause, best.cause)) < 0 {
			best = c
		}
	}
	if by[best] <= 0 {
		return Link{}, false
	}
	l := Link{Method: method, Stage: best.stage, Cause: best.cause, NS: mean(by[best], m.Typical.Calls+m.Slow.Calls)}
	l.Culprit, l.Location = largest(best.stage, best.cause, &m.Typical, &m.Slow)
	return l, true
}
