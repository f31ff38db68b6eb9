package blame

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/rpcprof/profile"
)

const ms = int64(time.Millisecond)

// set makes a set of calls that lose the same time each.
func set(calls int, details ...profile.Detail) profile.Set {
	s := profile.Set{Calls: calls, Stages: map[string]profile.StageSums{}}
	for _, d := range details {
		d.NS *= int64(calls)
		st := s.Stages[d.Stage]
		if st.Causes == nil {
			st.Causes = map[string]int64{}
		}
		st.Causes[string(d.Cause)] += d.NS
		st.WallNS += d.NS
		s.Stages[d.Stage] = st
		s.WallNS += d.NS
		s.Details = append(s.Details, d)
	}
	return s
}

func part(stage string, cause profile.Cause, culprit, location string, ns int64) profile.Detail {
	return profile.Detail{Stage: stage, Cause: cause, Culprit: culprit, Location: location, NS: ns}
}

var work = part("handler", profile.CPUUser, "", "", ms/5)

func method(name string, calls int, slow ...profile.Detail) profile.Method {
	return profile.Method{
		Method: name, Calls: calls, P50NS: ms / 5, P99NS: 9 * ms,
		Typical: set(calls/2, work), Slow: set(calls/100, append(slow, work)...),
	}
}

// Every fault is named by stage, cause, culprit and line.
func TestTail(t *testing.T) {
	for _, c := range []struct {
		name, says string
		part       profile.Detail
	}{
		{"lock", "waiting for a lock at store.go:88 (holder not seen)", part("handler", profile.GoLock, "", "store.go:88", 8*ms)},
		{"pool", "behind Slow calls", part("queue", profile.Behind, "Slow", "", 8*ms)},
		{"inline", "behind Slow calls", part("recv", profile.Behind, "Slow", "", 8*ms)},
		{"hog", "runnable, but hog had the CPU", part("recv", profile.RunQueue, "hog", "", 8*ms)},
		{"sleep", "asleep at store.go:9", part("handler", profile.GoSleep, "", "store.go:9", 8*ms)},
		{"disk", "blocked on disk at store.go:70", part("handler", profile.BlockDisk, "", "store.go:70", 3*ms)},
		{"softirq", "interrupted by NET_RX (softirq)", part("handler", profile.SoftIRQ, "NET_RX", "", 2*ms)},
	} {
		t.Run(c.name, func(t *testing.T) {
			// A busier thread and a busier interrupt that no call waited for are beside it.
			vs := Judge(&profile.Profile{
				Window: profile.Window{EndNS: 1000 * ms}, Methods: []profile.Method{method("M", 1000, c.part)},
				Threads:    []profile.Thread{{TID: 7, Comm: "decoy", Role: "worker", CPUUserNS: 1000 * ms}, {TID: 8}},
				Interrupts: []profile.Interrupt{{Kind: "irq", Name: "decoy", NS: 900 * ms}},
			}, Options{})
			if len(vs) != 1 {
				t.Fatalf("verdicts: %+v", vs)
			}
			v := vs[0]
			if v.Kind != Tail || v.Stage != c.part.Stage || v.Cause != string(c.part.Cause) || v.Culprit != c.part.Culprit || v.Location != c.part.Location || v.ExcessNS != c.part.NS {
				t.Errorf("verdict is %+v", v)
			}
			if !strings.Contains(v.Sentence, c.says) || strings.Contains(v.Sentence, "thread") || strings.Contains(v.Sentence, "decoy") {
				t.Errorf("sentence is %q", v.Sentence)
			}
		})
	}
}

// The wait in the queue is followed to the line that the calls which held the
// workers wait in, and it leads, though the other method loses more.
func TestChain(t *testing.T) {
	slow := profile.Method{
		Method: "Slow", Calls: 200, P50NS: 12 * ms, P99NS: 20 * ms,
		Typical: set(100, part("handler", profile.GoSleep, "", "store.go:41", 12*ms)), Slow: set(2, part("handler", profile.GoSleep, "", "store.go:41", 20*ms)),
	}
	vs := Judge(&profile.Profile{Methods: []profile.Method{method("Fast", 1000, part("queue", profile.Behind, "Slow", "", 8*ms)), slow}}, Options{})
	if len(vs) != 2 || vs[0].Method != "Fast" || vs[1].Kind != Level {
		t.Fatalf("verdicts: %+v", vs)
	}
	if c := vs[0].Chain; len(c) != 1 || c[0].Method != "Slow" || c[0].Location != "store.go:41" || c[0].NS != (100*12+2*20)*ms/102 {
		t.Errorf("chain is %+v", c)
	}
	if !strings.Contains(vs[0].Sentence, "behind Slow calls, which are asleep at store.go:41") {
		t.Errorf("sentence is %q", vs[0].Sentence)
	}
}

// Calls that wait behind each other end the chain.
func TestChainOfItself(t *testing.T) {
	m := method("M", 1000, part("queue", profile.Behind, "M", "", 8*ms))
	if vs := Judge(&profile.Profile{Methods: []profile.Method{m}}, Options{}); len(vs) != 1 || len(vs[0].Chain) > 1 {
		t.Errorf("verdicts: %+v", vs)
	}
}

// Where all calls of most of the service are slow, that leads.
func TestLevel(t *testing.T) {
	m := profile.Method{
		Method: "M", Calls: 1000, P50NS: 10 * ms, P99NS: 30 * ms,
		Typical: set(500, work, part("handler", profile.GoLock, "", "store.go:88", 10*ms)),
		Slow:    set(10, work, part("handler", profile.GoLock, "", "store.go:88", 30*ms)),
	}
	vs := Judge(&profile.Profile{Methods: []profile.Method{m}}, Options{})
	if len(vs) != 1 || vs[0].Kind != Level || vs[0].Cause != "go.lock" || vs[0].Location != "store.go:88" {
		t.Errorf("verdicts: %+v", vs)
	}
}

// A level verdict leads over a larger tail if its method is half of all calls, and
// only then.
func TestLevelLeads(t *testing.T) {
	for calls, kind := range map[int]string{1000: Level, 999: Tail} {
		level := profile.Method{Method: "L", Calls: calls, P50NS: ms, Typical: set(500, part("handler", profile.GoSleep, "", "a.go:1", ms))}
		vs := Judge(&profile.Profile{Methods: []profile.Method{method("T", 1000, part("handler", profile.GoLock, "", "b.go:2", 500*ms)), level}}, Options{})
		if len(vs) != 2 || vs[0].Kind != kind {
			t.Errorf("with %d of %d calls: %+v", calls, calls+1000, vs)
		}
	}
}

// A typical call that only computes is a level verdict when it is over the SLO, not
// otherwise.
func TestLevelSLO(t *testing.T) {
	m := profile.Method{Method: "M", Calls: 1000, P50NS: 10 * ms, Typical: set(500, part("handler", profile.CPUUser, "", "", 10*ms)), Slow: set(0)}
	p := &profile.Profile{Methods: []profile.Method{m}}
	if vs := Judge(p, Options{}); len(vs) != 0 {
		t.Errorf("without an SLO: %+v", vs)
	}
	if vs := Judge(p, Options{SLO: 5 * time.Millisecond}); len(vs) != 1 || vs[0].Cause != "cpu.user" {
		t.Errorf("over the SLO: %+v", vs)
	}
}

// Nothing is said where nothing stands out: too little, too few, or not known why.
func TestQuiet(t *testing.T) {
	few := method("M", 1000, part("handler", profile.GoLock, "", "x.go:1", 8*ms))
	few.Slow = set(MinSlow-1, part("handler", profile.GoLock, "", "x.go:1", 8*ms))
	for name, m := range map[string]profile.Method{
		"quiet":               method("M", 1000),
		"not twice as slow":   {Method: "M", Calls: 1000, Typical: set(500, part("handler", profile.CPUUser, "", "", 10*ms)), Slow: set(10, part("handler", profile.CPUUser, "", "", 10*ms), part("queue", profile.RunQueue, "hog", "", 8*ms))},
		"below the threshold": method("M", 1000, part("recv", profile.RunQueue, "go", "", int64(MinExcess)-1)),
		"unknown":             method("M", 1000, part("handler", profile.Unknown, "", "", 8*ms)),
		"few":                 few,
		"spread thin": method("M", 1000, part("recv", profile.RunQueue, "a", "", ms+1), part("recv", profile.GoSched, "", "", ms+2), part("queue", profile.RunQueue, "b", "", ms+3),
			part("queue", profile.GoSched, "", "", ms+4), part("encode", profile.GoSched, "", "", ms+5), part("write", profile.GoSched, "", "", ms+6)),
	} {
		// A thread that is loud but that no call waits for is no culprit.
		p := &profile.Profile{Window: profile.Window{StartNS: 0, EndNS: 1000 * ms}, Methods: []profile.Method{m}, Threads: []profile.Thread{{TID: 7, CPUUserNS: 1000 * ms}}}
		if vs := Judge(p, Options{}); vs == nil || len(vs) != 0 {
			t.Errorf("%s: %+v", name, vs)
		}
	}
}

func TestAtMostFive(t *testing.T) {
	p := &profile.Profile{}
	for i := range 9 {
		p.Methods = append(p.Methods, method(string(rune('A'+i)), 1000, part("handler", profile.GoLock, "", "x.go:1", int64(i+2)*ms)))
	}
	vs := Judge(p, Options{})
	if len(vs) != maxVerdicts || vs[0].Method != "I" {
		t.Errorf("%d verdicts, first of %s", len(vs), vs[0].Method)
	}
}

// The names are what scripts read: fields may be added, these stay.
func TestJSON(t *testing.T) {
	r := Report{Profile: &profile.Profile{Schema: 1, Methods: []profile.Method{method("M", 1000, part("queue", profile.Behind, "M", "", 8*ms))}}}
	r.Verdicts = Judge(r.Profile, Options{})
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var top map[string]json.RawMessage
	var verdicts []map[string]json.RawMessage
	if err := json.Unmarshal(b, &top); err != nil {
		t.Fatal(err)
	}
	for _, k := range strings.Fields("schema targets window methods verdicts cpu threads connections in_flight slowest batch interrupts host coverage lost overhead limits") {
		if top[k] == nil {
			t.Errorf("no field %q", k)
		}
	}
	if err := json.Unmarshal(top["verdicts"], &verdicts); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(slices.Sorted(maps.Keys(verdicts[0])), " "); got != "cause chain culprit excess_ns kind location method sentence share side stage total_excess_ns" {
		t.Errorf("a verdict has %s", got)
	}
	var links []map[string]json.RawMessage
	if err := json.Unmarshal(verdicts[0]["chain"], &links); err != nil || len(links) != 1 {
		t.Fatalf("chain is %s: %v", verdicts[0]["chain"], err)
	}
	if got := strings.Join(slices.Sorted(maps.Keys(links[0])), " "); got != "cause culprit location method ns stage" {
		t.Errorf("a link has %s", got)
	}
	if b, err := json.Marshal(Report{Profile: &profile.Profile{}, Verdicts: Judge(&profile.Profile{}, Options{})}); err != nil || !strings.Contains(string(b), `"verdicts":[]`) {
		t.Errorf("without verdicts: %s, %v", b, err)
	}
}
