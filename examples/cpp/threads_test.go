//go:build linux

package cpp

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Eight threads with more calls than there are slots, on two shards, in a program of a
// C and a C++ part that forks: every call that was begun is counted, and nothing is
// left in slots and index.
func TestThreads(t *testing.T) {
	dir := t.TempDir()
	c, cpp, bin := filepath.Join(dir, "c.o"), filepath.Join(dir, "cpp.o"), filepath.Join(dir, "threads")
	run(t, "", compiler(t, "gcc"), append(warnings, "-std=c11", "-c", "-o", c, "testdata/threads.c")...)
	run(t, "", compiler(t, "g++"), append(warnings, "-std=c++17", "-c", "-o", cpp, "testdata/unit.cpp")...)
	run(t, "", "g++", "-pthread", "-o", bin, c, cpp)

	cmd := exec.Command(bin)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	var begun, refused uint64
	line, _ := bufio.NewReader(out).ReadString('\n')
	if _, err := fmt.Sscanf(line, "begun %d refused %d", &begun, &refused); err != nil {
		t.Fatalf("it said %q: %v, %v", line, err, cmd.Wait())
	}

	seg, raw := find(t, cmd.Process.Pid)
	h := seg.Header()
	slots, err := seg.Slots()
	if err != nil || len(slots) != 0 {
		t.Errorf("slots %+v, %v", slots, err)
	}
	index := make([]byte, segment.BucketSize<<h.IndexBits)
	if _, err := raw.ReadAt(index, int64(h.IndexOff)); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(index); i += 16 {
		if [8]byte(index[i:]) != [8]byte{} {
			t.Errorf("entry %d is left", i/16)
		}
	}
	hists, err := seg.Histograms(1)
	if err != nil {
		t.Fatal(err)
	}
	sum := uint64(0)
	for _, n := range hists[segment.HistTotal][1:] {
		sum += n
	}
	lost, noSlot, noIndex, closed, err := seg.Counts()
	if sum+lost != begun+refused || lost < refused || refused == 0 || noSlot == 0 || noIndex != 0 || closed || err != nil {
		t.Errorf("begun %d, refused %d; recorded %d, lost %d, without slot %d, without entry %d, closed %v, %v", begun, refused, sum, lost, noSlot, noIndex, closed, err)
	}
	recs, err := seg.Records(nil)
	// The oldest of a full ring may be written over at any time.
	if n := uint64(len(recs)); err != nil || seg.Torn != 0 || n != uint64(h.ShardCap*(h.RingCap-1)) || n+seg.Overwritten != sum {
		t.Errorf("%d records, %d overwritten, %d torn, %v", n, seg.Overwritten, seg.Torn, err)
	}
	kept, err := seg.Kept()
	if n := uint32(len(kept)); err != nil || n < h.ShardCap*h.FailedCap {
		t.Errorf("%d calls are kept, %v", n, err)
	}

	_ = stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
