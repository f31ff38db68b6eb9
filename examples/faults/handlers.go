package faults

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A request is one byte, which says whether the fault hits the call, and whatever
// comes after it.
const (
	requestPlain = 0
	requestHit   = 1
)

// store is the service.
type store struct {
	fault  Fault
	record []byte // what Get digests
	rounds int    // how often, for GetTime

	mu   sync.Mutex // for lock: hit calls hold it
	file *os.File   // for disk: hit calls write to it
	next atomic.Int64

	gets, reports, injected        atomic.Int64
	injectedNS, waitedNS, hitCalls atomic.Int64
}

func newStore(f Fault) *store {
	s := &store{fault: f, record: make([]byte, 4096)}
	for i := range s.record {
		s.record[i] = byte(i * 7)
	}
	s.calibrate()
	return s
}

// calibrate finds how many rounds take GetTime. The work is then the same for
// all calls, whether or not they are left alone on their CPU.
func (s *store) calibrate() {
	const rounds = 16
	s.rounds = rounds
	best := time.Hour
	for range 50 {
		start := time.Now()
		s.digest()
		best = min(best, time.Since(start))
	}
	s.rounds = max(1, int(rounds*GetTime/max(best, 1)))
}

func (s *store) digest() [sha256.Size]byte {
	var sum [sha256.Size]byte
	for range s.rounds {
		h := sha256.Sum256(s.record)
		for i := range sum {
			sum[i] ^= h[i]
		}
	}
	return sum
}

// get is demo.Store/Get.
func (s *store) get(_ context.Context, req []byte) ([]byte, error) {
	if len(req) == 0 {
		return nil, errors.New("empty request")
	}
	s.gets.Add(1)
	if req[0] == requestHit {
		s.hitCalls.Add(1)
		if err := s.inject(); err != nil {
			return nil, err
		}
	}
	sum := s.digest()
	return sum[:], nil
}

// report is demo.Store/Report.
func (s *store) report(_ context.Context, req []byte) ([]byte, error) {
	s.reports.Add(1)
	s.hitCalls.Add(1)
	start := time.Now()
	time.Sleep(ReportTime)
	s.count(start)
	return []byte("report"), nil
}

// inject does to a hit call what the fault does.
func (s *store) inject() error {
	start := time.Now()
	switch s.fault.Name {
	case "lock":
		s.update()
	case "sleep":
		s.pause()
	case "disk":
		if err := s.persist(start); err != nil {
			return err
		}
	default:
		return nil
	}
	s.count(start)
	return nil
}

func (s *store) count(start time.Time) {
	s.injected.Add(1)
	s.injectedNS.Add(int64(time.Since(start)))
}

// update is the fault "lock": its calls wait for one another here.
//
//go:noinline
func (s *store) update() {
	start := time.Now()
	s.mu.Lock() // the line that calls wait on
	defer s.mu.Unlock()
	s.waitedNS.Add(int64(time.Since(start)))
	time.Sleep(LockHold)
}

// pause is the fault "sleep".
//
//go:noinline
func (s *store) pause() { time.Sleep(SleepTime) }

// persist is the fault "disk".
//
//go:noinline
func (s *store) persist(start time.Time) error {
	block := make([]byte, DiskWrite)
	at := s.next.Add(1) % 64 * DiskWrite // the file's size is bounded
	for time.Since(start) < DiskTime {
		if _, err := s.file.WriteAt(block, at); err != nil {
			return fmt.Errorf("disk: %w", err)
		}
		if err := s.file.Sync(); err != nil {
			return fmt.Errorf("disk: %w", err)
		}
	}
	return nil
}
