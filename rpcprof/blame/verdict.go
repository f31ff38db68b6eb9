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

// MinSlow and MinTypical are the calls that it takes to compare slow with typical.
const (
	MinSlow    = 5
	MinTypical = 20
)

const (
	minShare    = 0.20 // of the slow set's excess that a verdict must explain
	minRatio    = 2    // of the slow set's mean wall time to the typical
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
	Side     string `json:"side"`
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
	NS       int64  `json:"ns"` // mean per call, over the method's typical and slow calls
}

// Report is a profile with the verdicts on it: the output that scripts read.
type Report struct {
	*profile.Profile
	Verdicts []Verdict `json:"verdicts"`
}

// Options of Judge.
type Options struct {
	SLO time.Duration // that calls are to meet; 0 when there is none
	// Stages judges stages also where no cause is known: for evidence that has stages
	// and queues only. What a stage is slow for is then left open.
	Stages bool
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
	seen := map[[4]string]bool{}
	for i := range p.Methods {
		m := &p.Methods[i]
		if v, ok := j.level(m); ok {
			seen[[4]string{v.Method, v.Side, v.Stage, v.Cause}] = true
			// What is slow by itself all the time is known; what it does to others leads,
			// unless it is most of the service.
			class := 2
			switch {
			case elsewhere(m.Side, v.Stage): // that a call takes time where it is served is no news here
				class = 3
			case 2*m.Calls >= j.total:
				class = 0
			}
			rows = append(rows, row{v, class})
		}
	}
	for i := range p.Methods {
		for _, v := range j.tail(&p.Methods[i]) {
			if !seen[[4]string{v.Method, v.Side, v.Stage, v.Cause}] {
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

// elsewhere says whether a stage is not this process's: of a client's call, the wire
// and the server.
func elsewhere(side, stage string) bool {
	return side == "client" && (strings.Contains(stage, "wire+") || strings.HasPrefix(stage, "server"))
}

type judge struct {
	p     *profile.Profile
	o     Options
	total int // calls of all methods
}

// Comparable says whether a method has calls enough to compare slow with typical.
func Comparable(m *profile.Method) bool {
	return m.Slow.Calls >= MinSlow && m.Typical.Calls >= MinTypical
}

// tail compares a method's slow calls with its typical ones.
func (j *judge) tail(m *profile.Method) []Verdict {
	if !Comparable(m) {
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
		if c.cause == string(profile.Unknown) && !j.o.Stages || c.excess < int64(MinExcess) || share < minShare {
			continue
		}
		v := Verdict{
			Kind: Tail, Method: m.Method, Side: m.Side, Stage: c.stage, Cause: c.cause,
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
	if m.Typical.Calls < MinTypical || m.Typical.WallNS <= 0 {
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
			// A handler may as well compute all that time.
			vague := cause == string(profile.Unknown) && (!j.o.Stages || !overSLO && (stage == "handler" || stage == "decode"))
			if vague || !(big && !onCPU || overSLO) {
				continue
			}
			if per > best.ExcessNS || per == best.ExcessNS && stage+cause < best.Stage+best.Cause {
				best = Verdict{
					Kind: Level, Method: m.Method, Side: m.Side, Stage: stage, Cause: cause,
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

func mean(sum int64, n int) int64 {
	if n == 0 {
		return 0
	}
	return sum / int64(n)
}
