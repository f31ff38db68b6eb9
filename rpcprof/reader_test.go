package rpcprof

import (
	"testing"
	"unsafe"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// mapped reads a segment where the Profiler has mapped it.
type mapped struct{ p *Profiler }

func (m mapped) ReadAt(b []byte, off int64) (int, error) {
	base := unsafe.Pointer(m.p.seg.Header)
	return copy(b, unsafe.Slice((*byte)(unsafe.Add(base, off)), len(b))), nil
}

func open(t testing.TB, p *Profiler) *segment.Reader {
	t.Helper()
	r, err := segment.NewReader(mapped{p}, int64(p.seg.Header.FileSize))
	if err != nil {
		t.Fatal(err)
	}
	return r
}
