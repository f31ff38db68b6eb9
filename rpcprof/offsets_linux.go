//go:build amd64 || arm64

package rpcprof

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// findOffsets looks once; the runtime does not change under a process.
var findOffsets = sync.OnceValues(searchOffsets)

const (
	gBytes = 640  // how much of a g is searched (480 bytes in Go 1.26)
	mBytes = 1024 // and of an m
	// Goroutine states of the runtime, unchanged since Go 1.0 (runtime2.go).
	statusSyscall = 3 // what a goroutine that copies its own g through the kernel sees
	statusWaiting = 4
)

// look copies memory of this process. It goes through the kernel, so that an
// address that is not mapped is an error and not a fault.
func look(addr uintptr, b []byte) error {
	local := unix.Iovec{Base: &b[0]}
	local.SetLen(len(b))
	n, err := unix.ProcessVMReadv(os.Getpid(), []unix.Iovec{local}, []unix.RemoteIovec{{Base: addr, Len: len(b)}}, 0)
	if err != nil {
		return err
	}
	if n != len(b) {
		return unix.EFAULT
	}
	return nil
}

func word(b []byte, off uint) uintptr { return uintptr(binary.NativeEndian.Uint64(b[off:])) }

// status reads a goroutine's state without the bit that the garbage collector
// sets while it scans the stack.
func status(b []byte, off uint) uint32 {
	const scan = 0x1000
	return binary.NativeEndian.Uint32(b[off:]) &^ scan
}

// running is what a goroutine sees of itself.
type running struct {
	g    uintptr
	goid uint64
	tid  uint64
	body [gBytes]byte
	tls  map[int]bool // offsets from the fs base that hold g
}

// searchOffsets searches several times: with other goroutines, a word that
// held the right value by chance does so no longer.
func searchOffsets() (o *offsets, err error) {
	for range 5 {
		// On a goroutine of its own: one that is locked to its thread, as the main
		// goroutine is before main begins, stands in the m twice.
		var wg sync.WaitGroup
		wg.Go(func() { o, err = searchOnce() })
		wg.Wait()
		if err == nil {
			return o, nil
		}
	}
	return nil, err
}

func searchOnce() (*offsets, error) {
	self, err := observeRunning()
	if err != nil {
		return nil, err
	}
	o := &offsets{}
	if err := o.searchRunning(self); err != nil {
		return nil, err
	}
	if err := o.searchParked(self); err != nil {
		return nil, err
	}
	if err := o.recheck(); err != nil {
		return nil, err
	}
	o.gLeft = searchLeft()
	return o, nil
}

// observeRunning lets several goroutines look at themselves, so that what holds
// for one of them by chance does not hold for all.
func observeRunning() ([]running, error) {
	const n = 4
	out := make([]running, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = out[i].observe() })
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

func (r *running) observe() error {
	id := goidFromStack()
	if id == 0 {
		return errors.New("goroutine id not found in its stack header")
	}
	for range 20 {
		tid := unix.Gettid()
		r.g, r.goid, r.tid = uintptr(getg()), id, uint64(tid)
		if err := look(r.g, r.body[:]); err != nil {
			return fmt.Errorf("own memory is refused: %w", err)
		}
		r.tls = tlsHolding(r.g)
		if unix.Gettid() == tid { // not moved to another thread meanwhile
			return nil
		}
	}
	return errors.New("goroutine kept moving between threads")
}

// goidFromStack reads "goroutine 12 [running]".
func goidFromStack() uint64 {
	var b [64]byte
	head := b[:runtime.Stack(b[:], false)]
	head, ok := bytes.CutPrefix(head, []byte("goroutine "))
	if !ok {
		return 0
	}
	if i := bytes.IndexByte(head, ' '); i > 0 {
		head = head[:i]
	}
	id, _ := strconv.ParseUint(string(head), 10, 64)
	return id
}

func (o *offsets) searchRunning(self []running) error {
	var err error
	if o.gGoid, err = only("goid", gBytes-8, 8, func(off uint) bool {
		return all(self, func(r *running) bool { return uint64(word(r.body[:], off)) == r.goid })
	}); err != nil {
		return err
	}
	// g.m leads to an m whose first pointer, g0, leads back to it.
	var m, back [8]byte
	if o.gM, err = only("g.m", gBytes-8, 8, func(off uint) bool {
		for i := range self {
			p := word(self[i].body[:], off)
			if p == 0 || p%8 != 0 || look(p, m[:]) != nil {
				return false
			}
			if look(word(m[:], 0)+uintptr(off), back[:]) != nil || word(back[:], 0) != p {
				return false
			}
		}
		return true
	}); err != nil {
		return err
	}
	o.mG0 = 0 // by the search above
	if runtime.GOARCH == "amd64" {
		if o.tls, err = commonTLS(self); err != nil {
			return err
		}
	}
	return o.searchM()
}

// searchM finds m.procid and m.curg. The goroutine's thread-local slot lies in
// the m too, on amd64 without cgo, and holds the same value: it is told apart by
// its address.
func (o *offsets) searchM() error {
	var r running
	var now [mBytes]byte
	at, err := o.observeM(&r, &now)
	if err != nil {
		return err
	}
	if o.mProcID, err = only("m.procid", mBytes-8, 8, func(off uint) bool {
		return uint64(word(now[:], off)) == r.tid
	}); err != nil {
		return err
	}
	fs := fsBase()
	o.mCurG, err = only("m.curg", mBytes-8, 8, func(off uint) bool {
		return word(now[:], off) == r.g && at+uintptr(off) != fs+uintptr(o.tls)
	})
	return err
}

// observeM copies the m that runs the calling goroutine, from a moment in which
// it did not move. It gives the m's address.
func (o *offsets) observeM(r *running, m *[mBytes]byte) (uintptr, error) {
	for range 20 {
		if err := r.observe(); err != nil {
			return 0, err
		}
		at := word(r.body[:], o.gM)
		if err := look(at, m[:]); err != nil {
			return 0, err
		}
		if unix.Gettid() == int(r.tid) {
			return at, nil
		}
	}
	return 0, errors.New("goroutine kept moving between threads")
}

// Goroutines wait for one of three reasons, several for each: where the reason is
// kept they agree within a kind and differ between kinds, elsewhere hardly so.
const (
	kinds   = 3 // a channel receive, a lock, a select
	perKind = 5
)

// parked is a goroutine that waits for a known reason, kind i%kinds.
type parked struct {
	g    uintptr
	body [gBytes]byte
}

// searchParked finds what only shows in a goroutine that waits: status, wait
// reason, and the saved pc and frame pointer. The goroutines need a moment to
// begin waiting.
func (o *offsets) searchParked(self []running) error {
	ws := make([]parked, kinds*perKind)
	release := park(ws)
	defer release()
	var err error
	for range 200 {
		for i := range ws {
			if err := look(ws[i].g, ws[i].body[:]); err != nil {
				return err
			}
		}
		if err = o.searchWaiting(self, ws); err == nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return err
}

func (o *offsets) searchWaiting(self []running, ws []parked) (err error) {
	if o.schedPC, err = only("g.sched.pc", gBytes-8, 8, func(off uint) bool {
		return all(ws, func(p *parked) bool { return funcName(word(p.body[:], off)) == "runtime.gopark" })
	}); err != nil {
		return err
	}
	if o.gStatus, err = only("g.atomicstatus", gBytes-8, 4, func(off uint) bool {
		return all(ws, func(p *parked) bool { return status(p.body[:], off) == statusWaiting }) &&
			all(self, func(r *running) bool { return status(r.body[:], off) == statusSyscall })
	}); err != nil {
		return err
	}
	if o.gWait, err = only("g.waitreason", gBytes-8, 1, func(off uint) bool {
		for i := range ws {
			if ws[i].body[off] != ws[i%kinds].body[off] {
				return false
			}
		}
		recv, lock, sel := ws[0].body[off], ws[1].body[off], ws[2].body[off]
		return recv != lock && recv != sel && lock != sel &&
			min(recv, lock, sel) > 0 && max(recv, lock, sel) < 64
	}); err != nil {
		return err
	}
	o.schedBP, err = only("g.sched.bp", gBytes-8, 8, func(off uint) bool {
		return all(ws, func(p *parked) bool { return leadsHere(p, word(p.body[:], off)) })
	})
	return err
}

// leadsHere follows frame pointers from bp and says whether they reach this package.
func leadsHere(p *parked, bp uintptr) bool {
	lo, hi := word(p.body[:], 0), word(p.body[:], 8) // g.stack comes first
	for range 12 {
		if bp <= lo || bp >= hi || bp%8 != 0 {
			return false
		}
		var frame [16]byte
		if look(bp, frame[:]) != nil {
			return false
		}
		name := funcName(word(frame[:], 8))
		if name == "" {
			return false
		}
		if strings.Contains(name, "rpcprof.park") {
			return true
		}
		bp = word(frame[:], 0)
	}
	return false
}

func funcName(pc uintptr) string {
	f := runtime.FuncForPC(pc)
	if f == nil {
		return ""
	}
	return f.Name()
}

// park starts goroutines that wait until they are released.
func park(ws []parked) (release func()) {
	ch, never := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	mu.Lock()
	started := make(chan struct{}, len(ws))
	var wg sync.WaitGroup
	wait := func(i int, f func()) {
		wg.Go(func() {
			ws[i].g = uintptr(getg())
			started <- struct{}{}
			f()
		})
	}
	for i := range ws {
		switch i % kinds {
		case 0:
			wait(i, func() { <-ch })
		case 1:
			wait(i, func() { mu.Lock(); defer mu.Unlock() })
		case 2:
			wait(i, func() {
				select {
				case <-ch:
				case <-never:
				}
			})
		}
	}
	for range ws {
		<-started
	}
	return func() { close(ch); mu.Unlock(); wg.Wait() }
}

// recheck reads through the offsets on other goroutines and compares with what
// is known: the final word before they are published.
func (o *offsets) recheck() error {
	var errs [4]error
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = o.recheckHere() })
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

func (o *offsets) recheckHere() error {
	var r running
	var b [mBytes]byte
	if _, err := o.observeM(&r, &b); err != nil {
		return err
	}
	switch {
	case uint64(word(b[:], o.mProcID)) != r.tid:
		return errors.New("m.procid is not the thread's id")
	case word(b[:], o.mCurG) != r.g:
		return errors.New("m.curg is not the running goroutine")
	case o.goid(getg()) != r.goid:
		return errors.New("goid is not the goroutine's id")
	case runtime.GOARCH == "amd64" && !r.tls[o.tls]:
		return errors.New("the goroutine is not at the thread-local offset")
	}
	return nil
}

func commonTLS(self []running) (int, error) {
	var found []int
	for off := range self[0].tls {
		if all(self, func(r *running) bool { return r.tls[off] }) {
			found = append(found, off)
		}
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("thread-local offset of g: %d candidates", len(found))
	}
	return found[0], nil
}

// only gives the one offset in [0, limit] at which a fact holds.
func only(what string, limit, step uint, holds func(off uint) bool) (uint, error) {
	found, n := uint(0), 0
	for off := uint(0); off <= limit; off += step {
		if holds(off) {
			found = off
			n++
		}
	}
	if n != 1 {
		return 0, fmt.Errorf("%s: %d candidates", what, n)
	}
	return found, nil
}

func all[T any](s []T, f func(*T) bool) bool {
	for i := range s {
		if !f(&s[i]) {
			return false
		}
	}
	return true
}
