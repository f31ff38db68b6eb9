package blame

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/rpcprof/toolkit/rpcprof/profile"
)

// MinExcess is the mean time per slow call below which nothing stands out. It is
// the same for every stage and cause.
const MinExcess = time.Millisecond

const (
	minShare    = 0.20 // of the slow set's excess that a verdict must explain
	minRatio    = 2    // of the slow set's mean wall time to the typical
	minSlow     = 5    // calls in the slow set
	minTypical  = 20   // calls in the typical set
	maxVerdicts = 5
	maxChain    = 4
)

// A level verdict needs one cause to hold this much of the typical call.
const (
	levelShare = 0.30
	levelMin   = 500 * time.Microsecond
)

// Kinds of verdict.
const (
	Tail  = "tail"
	Level = "level"
)

// Verdict says what one method's calls lose time to. Times are nanoseconds.
type Verdict struct {
	Kind     string `json:"kind"`
	Method   string `json:"method"`
	Stage    string `json:"stage"`
	Cause    string `json:"cause"`
	Culprit  string `json:"culprit"`  // a method, a process, an interrupt; empty where there is none
	Location string `json:"location"` // the line that waited, empty where unknown
	// ExcessNS is the mean per slow call over the typical one; for level, the mean
	// per typical call.
	ExcessNS      int64   `json:"excess_ns"`
	TotalExcessNS int64   `json:"total_excess_ns"`
	Share         float64 `json:"share"` // of the slow set's excess; for level, of the typical call
	Chain         []Link  `json:"chain"`
	Sentence      string  `json:"sentence"`
}

// Link is one step from a wait to what it waited for.
type Link struct {
	Method   string `json:"method"`
	Stage    string `json:"stage"`
	Cause    string `json:"cause"`
	Culprit  string `json:"culprit"`
	Location string `json:"location"`
	NS       int64  `json:"ns"` // mean per call of the method
}

// Report is a profile with the verdicts on it: the output that scripts read.
type Report struct {
	*profile.Profile
	Verdicts []Verdict `json:"verdicts"`
}

// Options of Judge.
type Options struct {
	SLO time.Duration // that calls are to meet; 0 when there is none
}

// Judge gives the verdicts on a profile, ranked, at most five. It gives an empty
// list when nothing stands out.
func Judge(p *profile.Profile, o Options) []Verdict {
	j := judge{p: p, o: o}
	for i := range p.Methods {
		j.total += p.Methods[i].Calls
	}
	type row struct {
		Verdict
		class int
	}
	var rows []row
	seen := map[[3]string]bool{}
	for i := range p.Methods {
		m := &p.Methods[i]
		if v, ok := j.level(m); ok {
			seen[[3]string{v.Method, v.Stage, v.Cause}] = true
			// What is slow by itself all the time is known; what it does to others leads,
			// unless it is most of the service.
			class := 2
			if 2*m.Calls >= j.total {
				class = 0
			}
			rows = append(rows, row{v, class})
		}
	}
	for i := range p.Methods {
		for _, v := range j.tail(&p.Methods[i]) {
			if !seen[[3]string{v.Method, v.Stage, v.Cause}] {
				rows = append(rows, row{v, 1})
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(b.TotalExcessNS, a.TotalExcessNS),
			cmp.Compare(a.Method, b.Method), cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Cause, b.Cause))
	})
	out := []Verdict{}
	for _, r := range rows[:min(len(rows), maxVerdicts)] {
		out = append(out, r.Verdict)
	}
	return out
}

type judge struct {
	p     *profile.Profile
	o     Options
	total int // calls of all methods
}

// tail compares a method's slow calls with its typical ones.
func (j *judge) tail(m *profile.Method) []Verdict {
	if m.Slow.Calls < minSlow || m.Typical.Calls < minTypical {
		return nil
	}
	slowMean, typicalMean := mean(m.Slow.WallNS, m.Slow.Calls), mean(m.Typical.WallNS, m.Typical.Calls)
	if slowMean < minRatio*typicalMean {
		return nil
	}
	type cell struct {
		stage, cause string
		excess       int64
	}
	var cells []cell
	var sum int64
	for stage, s := range m.Slow.Stages {
		for cause, ns := range s.Causes {
			d := mean(ns, m.Slow.Calls) - mean(m.Typical.Stages[stage].Causes[cause], m.Typical.Calls)
			if d > 0 {
				sum += d
				cells = append(cells, cell{stage, cause, d})
			}
		}
	}
	var out []Verdict
	for _, c := range cells {
		share := float64(c.excess) / float64(sum)
		if c.cause == string(profile.Unknown) || c.excess < int64(MinExcess) || share < minShare {
			continue
		}
		v := Verdict{
			Kind: Tail, Method: m.Method, Stage: c.stage, Cause: c.cause,
			ExcessNS: c.excess, TotalExcessNS: c.excess * int64(m.Slow.Calls), Share: share,
		}
		j.blame(&v, &m.Slow)
		v.Sentence = j.sentence(&v, m)
		out = append(out, v)
	}
	return out
}

// level looks for what the typical call loses its time to.
func (j *judge) level(m *profile.Method) (Verdict, bool) {
	if m.Typical.Calls < minTypical || m.Typical.WallNS <= 0 {
		return Verdict{}, false
	}
	overSLO := j.o.SLO > 0 && m.P50NS > int64(j.o.SLO)
	var best Verdict
	for stage, s := range m.Typical.Stages {
		for cause, ns := range s.Causes {
			per := mean(ns, m.Typical.Calls)
			share := float64(ns) / float64(m.Typical.WallNS)
			onCPU := strings.HasPrefix(cause, "cpu.")
			big := share >= levelShare && per >= int64(levelMin)
			if cause == string(profile.Unknown) || !(big && !onCPU || overSLO) {
				continue
			}
			if per > best.ExcessNS || per == best.ExcessNS && stage+cause < best.Stage+best.Cause {
				best = Verdict{
					Kind: Level, Method: m.Method, Stage: stage, Cause: cause,
					ExcessNS: per, TotalExcessNS: per * int64(m.Calls), Share: share,
				}
			}
		}
	}
	if best.ExcessNS == 0 {
		return best, false
	}
	j.blame(&best, &m.Typical)
	best.Sentence = j.sentence(&best, m)
	return best, true
}

// blame names the culprit and the line, and follows the chain to its end.
func (j *judge) blame(v *Verdict, set *profile.Set) {
	v.Chain = []Link{}
	if d := largest(set, v.Stage, v.Cause); d != nil {
		v.Culprit, v.Location = d.Culprit, d.Location
	}
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

// largest is the biggest part of one stage and cause that names somebody or some
// place, else the biggest at all.
func largest(set *profile.Set, stage, cause string) *profile.Detail {
	var best *profile.Detail
	named := func(d *profile.Detail) bool { return d.Culprit != "" || d.Location != "" }
	for i := range set.Details {
		d := &set.Details[i]
		if d.Stage != stage || string(d.Cause) != cause {
			continue
		}
		if best == nil || named(d) && !named(best) || named(d) == named(best) && d.NS > best.NS {
			best = d
		}
	}
	return best
}

// holding says what a method's calls do while they hold a worker: the largest of
// their causes from decode to encode.
func (j *judge) holding(method string) (Link, bool) {
	for i := range j.p.Methods {
		m := &j.p.Methods[i]
		if m.Method != method {
			continue
		}
		set := &m.Typical
		if set.Calls == 0 {
			set = &m.Slow
		}
		var best *profile.Detail
		for k := range set.Details {
			d := &set.Details[k]
			held := strings.Contains(d.Stage, "handler") || strings.Contains(d.Stage, "decode") || strings.Contains(d.Stage, "encode")
			if held && (best == nil || d.NS > best.NS) {
				best = d
			}
		}
		if best == nil || set.Calls == 0 {
			return Link{}, false
		}
		return Link{method, best.Stage, string(best.Cause), best.Culprit, best.Location, mean(best.NS, set.Calls)}, true
	}
	return Link{}, false
}

func mean(sum int64, n int) int64 {
	if n == 0 {
		return 0
	}
	return sum / int64(n)
}
