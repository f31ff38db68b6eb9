package blame

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rpcprof/toolkit/rpcprof/profile"
)

func first(t *testing.T, ms ...profile.Method) Verdict {
	t.Helper()
	vs := Judge(&profile.Profile{Methods: ms}, Options{})
	if len(vs) == 0 {
		t.Fatal("no verdict")
	}
	return vs[0]
}

// The few calls that hold a worker long are what the others wait for, though the
// typical ones of the same method only compute.
func TestChainSeesTheSlowCalls(t *testing.T) {
	m := method("M", 1000, part("queue", profile.Behind, "M", "", 8*ms), part("handler", profile.GoSleep, "", "store.go:41", 20*ms))
	for _, v := range Judge(&profile.Profile{Methods: []profile.Method{m}}, Options{}) {
		if v.Cause != string(profile.Behind) {
			continue
		}
		if len(v.Chain) != 1 || v.Chain[0].Cause != "go.sleep" || v.Chain[0].Location != "store.go:41" {
			t.Errorf("chain is %+v", v.Chain)
		}
		return
	}
	t.Error("no verdict on the wait")
}

// What a method mostly does is one cause, however many lines it is spread over.
func TestChainAddsUpACause(t *testing.T) {
	held := []profile.Detail{part("handler", profile.CPUUser, "", "", 3*ms)}
	for i := range 5 {
		held = append(held, part("handler", profile.GoLock, "", fmt.Sprintf("x.go:%d", i), ms+int64(i)))
	}
	held = append(held, part("queue", profile.RunQueue, "hog", "", 100*ms)) // it holds no worker there
	slow := profile.Method{Method: "Slow", Calls: 40, Typical: set(20, held...)}
	v := first(t, method("Fast", 1000, part("queue", profile.Behind, "Slow", "", 8*ms)), slow)
	if c := v.Chain; len(c) != 1 || c[0].Cause != "go.lock" || c[0].Location != "x.go:4" || c[0].NS != 5*ms+10 {
		t.Errorf("chain is %+v", c)
	}
}

// A chain is followed, but not for ever.
func TestChainEnds(t *testing.T) {
	behind := func(name, other string) profile.Method {
		return profile.Method{Method: name, Calls: 40, Typical: set(20, part("encode", profile.Behind, other, "", ms/4))}
	}
	fast := method("Fast", 1000, part("queue", profile.Behind, "A", "", 8*ms))
	ring := first(t, fast, behind("A", "B"), behind("B", "A"))
	if len(ring.Chain) != 2 || !strings.Contains(ring.Sentence, "behind A calls, which are behind B calls, those behind A calls") {
		t.Errorf("%d links: %s", len(ring.Chain), ring.Sentence)
	}
	long := first(t, fast, behind("A", "B"), behind("B", "C"), behind("C", "D"), behind("D", "E"), behind("E", "F"))
	if len(long.Chain) != maxChain {
		t.Errorf("%d links", len(long.Chain))
	}
	if v := first(t, fast); len(v.Chain) != 0 || v.Chain == nil {
		t.Errorf("of a method that was not seen: %+v", v.Chain)
	}
}

// Who is blamed has most of the time by name; next to nothing is not enough.
func TestCulprit(t *testing.T) {
	for _, c := range []struct {
		name, culprit, says string
		parts               []profile.Detail
	}{
		{"over many lines", "hog", "but hog had the CPU", []profile.Detail{
			part("handler", profile.RunQueue, "cron", "", 3*ms), part("handler", profile.RunQueue, "hog", "a.go:1", 2*ms), part("handler", profile.RunQueue, "hog", "a.go:2", 2*ms),
		}},
		{"half not seen", "hog", "but hog had the CPU", []profile.Detail{part("handler", profile.RunQueue, "", "", 5*ms), part("handler", profile.RunQueue, "hog", "", 4*ms)}},
		{"hardly seen", "", "waiting for a CPU", []profile.Detail{part("handler", profile.RunQueue, "", "", 8*ms), part("handler", profile.RunQueue, "hog", "", ms/10)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if v := first(t, method("M", 1000, c.parts...)); v.Culprit != c.culprit || !strings.Contains(v.Sentence, c.says) {
				t.Errorf("culprit is %q: %s", v.Culprit, v.Sentence)
			}
		})
	}
}

// A used-up thread is named with a level verdict if it serves calls and others idle.
func TestFullThread(t *testing.T) {
	m := profile.Method{Method: "M", Calls: 1000, P50NS: 10 * ms, Typical: set(500, part("recv", profile.GoSched, "", "", 10*ms))}
	for _, c := range []struct {
		role        string
		busy, other int64
		says        bool
	}{{"reader", 998, 10, true}, {"reader", 998, 900, false}, {"reader", 900, 10, false}, {"runtime", 998, 10, false}, {"", 998, 10, false}} {
		p := &profile.Profile{Window: profile.Window{EndNS: 1000 * ms}, Methods: []profile.Method{m}, Threads: []profile.Thread{
			{TID: 4712, Role: "worker", CPUUserNS: c.other * ms},
			{TID: 4711, Role: c.role, CPUUserNS: c.busy * ms / 2, CPUKernelNS: c.busy * ms / 2},
		}}
		vs := Judge(p, Options{})
		if len(vs) != 1 || strings.Contains(vs[0].Sentence, "thread 4711 (reader) is 99.8 % busy") != c.says {
			t.Errorf("%+v: %+v", c, vs)
		}
	}
}
