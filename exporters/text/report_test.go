package text

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/rpcprof/toolkit/rpcprof/blame"
	"github.com/rpcprof/toolkit/rpcprof/profile"
)

var update = flag.Bool("update", false, "write the golden files")

func report() blame.Report {
	stage := func(ns int64, causes map[string]int64) profile.StageSums {
		return profile.StageSums{WallNS: ns, Causes: causes}
	}
	slow := profile.Set{Calls: 10, WallNS: 100e6, Stages: map[string]profile.StageSums{
		"queue":   stage(90e6, map[string]int64{"behind": 85e6, "unknown": 5e6}),
		"handler": stage(10e6, map[string]int64{"cpu.user": 10e6}),
	}}
	typical := profile.Set{Calls: 500, WallNS: 150e6, Stages: map[string]profile.StageSums{"handler": stage(150e6, map[string]int64{"cpu.user": 150e6})}}
	p := &profile.Profile{
		Schema: 1, Window: profile.Window{StartNS: 0, EndNS: 5e9}, Coverage: 0.973,
		Targets: []profile.Target{{PID: 4711, Comm: "orders", Service: "orders-eu"}},
		Methods: []profile.Method{{Method: "orders.Orders/GetWithAVeryLongNameThatDoesNotFitIntoTheColumn", Calls: 1234567,
			Outcomes: map[string]int{"ok": 1234560, "error": 7}, P50NS: 300e3, P99NS: 9.3e6, SlowThresholdNS: 9.3e6, CPUPerCallNS: 41200, CPUSamples: 9600, Typical: typical, Slow: slow}},
		Threads: []profile.Thread{{TID: 4712, Comm: "orders", Role: "worker", CPUUserNS: 2e9, CPUKernelNS: 1e8, RunqNS: 3e7, Voluntary: 12345, Involuntary: 67}},
		CPU:     profile.CPU{BusyCores: 1.25, UserNSPerCall: 12300, KernelNSPerCall: 45600, IRQNSPerCall: 700, Top2Share: 0.8},
		Runtime: &profile.Runtime{WindowNS: 4e9, Calls: 1e6, GCCycles: 31, GCPauses: 62, GCPauseNS: 3e6, GCAssistNS: 5e5, GCMarkNS: 80e6,
			AllocObjectsPerCall: 12.25, AllocBytesPerCall: 1900, HeapBytes: 12 << 20, Goroutines: 1034, GoroutineSwitchesPerCall: 4.1, OSSwitchesPerCall: 1.3},
		Interrupts: []profile.Interrupt{{CPU: 1, Kind: "softirq", Name: "NET_RX", Count: 1200, NS: 5e6, OnCallsNS: 2e6}},
		InFlight:   []profile.InFlight{{Method: "orders.Orders/Put", Stage: "handler", AgeNS: 3e9, StageAgeNS: 29e8, Location: "store.go:88"}},
		Host:       profile.Host{CPUs: make([]profile.HostCPU, 2)}, Overhead: profile.Overhead{ProfilerCPUNS: 1e8, BPFNS: 5e7},
		Limits: []string{"no off-CPU, run-queue, interrupt and socket evidence: root, or CAP_BPF and CAP_PERFMON, would add it"},
	}
	return blame.Report{Profile: p, Verdicts: []blame.Verdict{{Sentence: "orders.Orders/Get p99 9.30 ms (p50 300 µs): +8.50 ms in queue, behind orders.Orders/Put calls, which are waiting for a lock at store.go:88 (holder not seen) (95 % of what its slow calls lose)"}}}
}

func TestGolden(t *testing.T) {
	quiet := report()
	quiet.Verdicts, quiet.Limits = nil, nil
	quiet.Methods[0].Slow = profile.Set{Calls: 10, WallNS: 4e6, Stages: map[string]profile.StageSums{"handler": {WallNS: 4e6, Causes: map[string]int64{"cpu.user": 4e6}}}}
	few := quiet
	few.Profile = &profile.Profile{Methods: []profile.Method{{Method: "M", Calls: 4}}, Interrupts: []profile.Interrupt{{Kind: "irq", Name: "eth0", NS: 5e6}}}
	for name, r := range map[string]blame.Report{"report": report(), "quiet": quiet, "few": few} {
		var b bytes.Buffer
		if err := Write(&b, r, Options{}); err != nil {
			t.Fatal(err)
		}
		file := "testdata/" + name + ".txt"
		if *update {
			if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), b.String()); d != "" {
			t.Errorf("%s (run with -update to accept):\n%s", file, d)
		}
	}
}

// No line is wider than the terminal, and a pipe gets no escape sequences.
func TestWidth(t *testing.T) {
	for _, width := range []int{40, 60, 80, 100, 200} {
		var b bytes.Buffer
		r := report()
		r.CPU = profile.CPU{BusyCores: 123.25, Top2Share: 1}
		r.Limits = append(r.Limits, strings.Repeat("x", 250))
		if err := Write(&b, r, Options{Width: width}); err != nil {
			t.Fatal(err)
		}
		width = min(width, 100)
		for _, l := range strings.Split(b.String(), "\n") {
			if n := len([]rune(l)); n > width {
				t.Errorf("%d columns at width %d: %s", n, width, l)
			}
		}
		if strings.Contains(b.String(), "\x1b") {
			t.Error("escape sequences without Color")
		}
	}
}

// What is coloured reads the same, and fits the same.
func TestColor(t *testing.T) {
	var plain, color bytes.Buffer
	if err := Write(&plain, report(), Options{Width: 80}); err != nil {
		t.Fatal(err)
	}
	if err := Write(&color, report(), Options{Width: 80, Color: true}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(plain.String(), regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(color.String(), "")); d != "" || plain.Len() == color.Len() {
		t.Errorf("colour changes the text:\n%s", d)
	}
}

// A process cannot steer the terminal of who looks at it.
func TestForeignNames(t *testing.T) {
	r := report()
	const evil = "a\x1b[2J\rb\u202e"
	r.Targets[0].Comm, r.Threads[0].Comm, r.Methods[0].Method, r.InFlight[0].Location = evil, evil, evil, evil
	r.Verdicts[0].Sentence = "runnable, but " + evil + " had the CPU"
	var b bytes.Buffer
	if err := Write(&b, r, Options{}); err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexFunc(b.String(), func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }); i >= 0 {
		t.Errorf("not printable at %q", b.String()[i:min(i+20, b.Len())])
	}
}
