package pprof

import (
	"bytes"
	"testing"

	pp "github.com/google/pprof/profile"

	"github.com/rpcprof/toolkit/rpcprof/profile"
)

// What is written can be read again, and its sums are the cells'.
func TestRoundTrip(t *testing.T) {
	stack := profile.Stack{{Func: "sync.(*Mutex).Lock", File: "mutex.go", Line: 46}, {Func: "demo.update", File: "store.go", Line: 88}}
	in := &profile.Profile{Window: profile.Window{StartNS: 1, EndNS: 5e9 + 1}, Cells: []profile.Cell{
		{Method: "a", Stage: "handler", Cause: profile.GoLock, Stack: stack, Calls: 3, NS: 300},
		{Method: "a", Stage: "handler", Cause: profile.CPUUser, Calls: 3, NS: 70},
		{Method: "b", Stage: "queue", Cause: profile.Behind, Culprit: "a", Calls: 2, NS: 41},
		{Method: "b", Stage: "recv", Cause: profile.RunQueue, Culprit: "hog", Calls: 1, NS: 9},
		{Method: "b", Stage: "recv", Cause: profile.SoftIRQ, Culprit: "NET_RX", Calls: 1, NS: 5},
		{Method: "b", Stage: "recv", Cause: profile.Unknown, Calls: 1, NS: 2},
	}}
	var buf bytes.Buffer
	if err := Write(&buf, in); err != nil {
		t.Fatal(err)
	}
	out, err := pp.Parse(&buf)
	if err != nil {
		t.Fatal(err)
	}
	var sums [6]int64
	for _, s := range out.Sample {
		for i, v := range s.Value {
			sums[i] += v
		}
	}
	if want := [6]int64{11, 427, 70, 9, 341, 5}; sums != want {
		t.Errorf("sums are %v, want %v", sums, want)
	}
	if out.DurationNanos != 5e9 {
		t.Errorf("duration is %d ns", out.DurationNanos)
	}
	first := out.Sample[0]
	if n := len(first.Location); n != 5 || first.Location[1].Line[0].Function.Name != "demo.update" || first.Location[4].Line[0].Function.Name != "a" {
		t.Errorf("the stack has %d frames and ends in %v", n, first.Location[n-1].Line[0].Function.Name)
	}
	if first.Label["cause"][0] != "go.lock" {
		t.Errorf("labels are %v", first.Label)
	}
}
