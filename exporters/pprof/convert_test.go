package pprof

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pp "github.com/google/pprof/profile"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/profile"
)

var stack = profile.Stack{{Func: "sync.(*Mutex).Lock", File: "mutex.go", Line: 46}, {Func: "demo.update", File: "store.go", Line: 88}}

// sample is a profile of a window of five seconds that has just ended.
func sample() *profile.Profile {
	end := rpcprof.Now()
	return &profile.Profile{Window: profile.Window{StartNS: end - 5e9, EndNS: end}, Cells: []profile.Cell{
		{Method: "a", Stage: "handler", Cause: profile.GoLock, Stack: stack, Calls: 3, NS: 300},
		{Method: "a", Stage: "handler", Cause: profile.CPUUser, Calls: 3, NS: 70},
		{Method: "a", Stage: "handler", Cause: profile.CPUKernel, Stack: profile.Stack{{Func: "vfs_read", Kernel: true}, stack[1]}, Calls: 1, NS: 30},
		{Method: "a", Stage: "handler", Cause: profile.BlockDisk, Stack: stack[1:], Calls: 2, NS: 11},
		{Method: "b", Stage: "queue", Cause: profile.Behind, Culprit: "a", Calls: 2, NS: 41},
		{Method: "b", Stage: "recv", Cause: profile.RunQueue, Culprit: "hog", Calls: 1, NS: 9},
		{Method: "b", Stage: "recv", Cause: profile.SoftIRQ, Culprit: "NET_RX", Calls: 1, NS: 5},
		{Method: "b", Stage: "recv", Cause: profile.IRQ, Culprit: "eth0", Calls: 1, NS: 4},
		{Method: "b", Stage: "recv", Cause: profile.Unknown, Calls: 1, NS: 2},
	}}
}

func written(t *testing.T, p *profile.Profile) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := Write(&buf, p); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func names(s *pp.Sample) []string {
	var out []string
	for _, l := range s.Location {
		out = append(out, l.Line[0].Function.Name)
	}
	return out
}

// What is written can be read again, and its sums are the cells'.
func TestRoundTrip(t *testing.T) {
	in := sample()
	out, err := pp.ParseData(written(t, in))
	if err != nil {
		t.Fatal(err)
	}
	sums := make([]int64, len(out.SampleType))
	for _, s := range out.Sample {
		for i, v := range s.Value {
			sums[i] += v
		}
	}
	if diff := cmp.Diff([]int64{15, 472, 100, 9, 352, 9}, sums); diff != "" {
		t.Errorf("sums (-want +got):\n%s", diff)
	}
	var got []string
	for _, v := range out.SampleType {
		got = append(got, v.Type+"/"+v.Unit)
	}
	want := []string{"calls/count", "wall/nanoseconds", "cpu/nanoseconds", "runq/nanoseconds", "blocked/nanoseconds", "irq/nanoseconds"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sample types (-want +got):\n%s", diff)
	}
	if out.DurationNanos != 5e9 {
		t.Errorf("duration is %d ns", out.DurationNanos)
	}
	if ago := time.Since(time.Unix(0, out.TimeNanos)); ago < 4*time.Second || ago > time.Minute {
		t.Errorf("it began %v ago, want 5s", ago)
	}
}

// Each cell is one sample: code at the leaf, then what is to blame, cause, stage
// and method. No function and no line is there twice.
func TestSamples(t *testing.T) {
	in := sample()
	out, err := Convert(in)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Sample) != len(in.Cells) {
		t.Fatalf("%d samples of %d cells", len(out.Sample), len(in.Cells))
	}
	for i, want := range map[int][]string{
		0: {"sync.(*Mutex).Lock", "demo.update", "go.lock", "handler", "a"},
		1: {"cpu.user", "handler", "a"},
		4: {"by a", "behind", "queue", "b"},
	} {
		if diff := cmp.Diff(want, names(out.Sample[i])); diff != "" {
			t.Errorf("stack of sample %d (-want +got):\n%s", i, diff)
		}
	}
	want := map[string][]string{"method": {"b"}, "stage": {"queue"}, "cause": {"behind"}, "culprit": {"a"}}
	if diff := cmp.Diff(want, out.Sample[4].Label); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	funcs, lines := map[string]bool{}, map[pp.Line]bool{}
	for _, f := range out.Function {
		if funcs[f.Name+f.Filename] {
			t.Errorf("function %s is there twice", f.Name)
		}
		funcs[f.Name+f.Filename] = true
	}
	for _, l := range out.Location {
		if lines[l.Line[0]] {
			t.Errorf("%s:%d is there twice", l.Line[0].Function.Name, l.Line[0].Line)
		}
		lines[l.Line[0]] = true
	}
}

// The same profile gives the same bytes, from several goroutines at once too.
func TestSameBytes(t *testing.T) {
	in := sample()
	want := written(t, in)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var buf bytes.Buffer
			if err := Write(&buf, in); err != nil || !bytes.Equal(buf.Bytes(), want) {
				t.Errorf("the bytes differ (%v)", err)
			}
		})
	}
	wg.Wait()
}

// A window without calls is a valid profile.
func TestEmpty(t *testing.T) {
	out, err := pp.ParseData(written(t, &profile.Profile{Window: profile.Window{StartNS: 1, EndNS: 2}}))
	if err != nil || len(out.Sample) != 0 {
		t.Errorf("%d samples (%v)", len(out.Sample), err)
	}
}
