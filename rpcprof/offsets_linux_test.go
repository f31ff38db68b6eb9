//go:build amd64 || arm64

package rpcprof

import (
	"errors"
	"os"
	"testing"

	"github.com/rpcprof/toolkit/rpcprof/segment"
	"golang.org/x/sys/unix"
)

// The search finds the same offsets again and again, and what is read through
// them is so.
func TestOffsets(t *testing.T) {
	first, err := searchOffsets()
	// Under qemu-user and in some sandboxes there is no such system call.
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		t.Skip("process_vm_readv is not to be had here: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		o, err := searchOffsets()
		if err != nil {
			t.Fatal(err)
		}
		if *o != *first {
			t.Fatalf("found %+v, then %+v", *first, *o)
		}
		if err := o.recheck(); err != nil {
			t.Fatal(err)
		}
		for {
			before := unix.Gettid()
			tid := o.tid(getg())
			if unix.Gettid() != before {
				continue // moved meanwhile
			}
			if int(tid) != before || o.goid(getg()) != goidFromStack() {
				t.Fatalf("thread %d is %d, goroutine %d is %d", before, tid, goidFromStack(), o.goid(getg()))
			}
			break
		}
	}
}

// A reader outside gets from the running goroutine to its call by the header.
func TestGoroutineFromOutside(t *testing.T) {
	p := New(Config{Service: t.Name()})
	defer p.Close()
	if p.Err() != nil {
		t.Skip(p.Err())
	}
	find := func() *segment.File {
		fs, err := segment.Find(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		var mine *segment.File
		for _, f := range fs {
			if h := f.Header(); h.ServiceString() == t.Name() && h.StartNS == p.seg.Header.StartNS {
				mine = f
				continue
			}
			_ = f.Close()
		}
		return mine
	}
	f := find()
	if f == nil {
		t.Fatal("the segment was not found")
	}
	h := f.Header()
	if h.Flags&segment.FlagGoroutines == 0 || h.PID != uint32(os.Getpid()) {
		t.Fatalf("flags %x, process %d", h.Flags, h.PID)
	}
	c := p.Begin(p.Method("m"), nil, 1)
	c.Start(nil, 2)
	c.StampAt(Handler, 3)
	g := uintptr(getg())
	var b [gBytes]byte
	if err := look(g, b[:]); err != nil {
		t.Skip(err)
	}
	slots, err := f.Slots()
	if err != nil || len(slots) != 1 || slots[0].G != uint64(g) || slots[0].Stage != segment.StageHandler ||
		uint64(word(b[:], uint(h.GGoid))) != slots[0].Goid {
		t.Errorf("slots %+v, %v", slots, err)
	}
	var bucket [segment.BucketSize]byte
	at := uintptr(h.Base) + uintptr(h.IndexOff) + uintptr(segment.BucketOf(uint64(g), h.IndexBits))*segment.BucketSize
	if err := look(at, bucket[:]); err != nil {
		t.Fatal(err)
	}
	found := false
	for i := uint(0); i < segment.BucketSize; i += 16 {
		found = found || word(bucket[:], i) == g && uint32(word(bucket[:], i+8)) == c.number
	}
	if !found {
		t.Errorf("the index does not lead from the goroutine to slot %d", c.number)
	}
	c.End(OK)
	_ = f.Close()
	_ = p.Close()
	if f := find(); f != nil {
		_ = f.Close()
		t.Error("a closed segment was found")
	}
}
