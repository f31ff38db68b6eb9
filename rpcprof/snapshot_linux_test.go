package rpcprof

import (
	"fmt"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Looking at the counts gives memory to nothing that was never recorded: a hole of
// the segment that is read through its mapping would be filled.
func TestSnapshotFillsNothing(t *testing.T) {
	p := profilerFor(t, Config{Methods: 64, Service: "sparse"})
	for i := range 32 {
		p.Method(fmt.Sprint("unused", i))
	}
	p.Begin(p.Method("used"), nil, 0).End(OK)
	resident := func() int {
		t.Helper()
		pages := make([]byte, (p.seg.Size()+4095)/4096)
		if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(p.seg.Header)), uintptr(p.seg.Size()), uintptr(unsafe.Pointer(&pages[0]))); e != 0 {
			t.Skip(e)
		}
		n := 0
		for _, b := range pages {
			n += int(b & 1)
		}
		return n
	}
	before := resident()
	for range 3 {
		if s := p.Snapshot(); len(s.Methods) != 1 {
			t.Fatalf("%d methods", len(s.Methods))
		}
	}
	// The one method's histograms may be touched.
	if after := resident(); after > before+segment.HistsPerMethod {
		t.Errorf("%d pages before, %d after", before, after)
	}
}
