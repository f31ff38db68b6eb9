package faults

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rpcprof/toolkit/rpcprof/pipeline"
)

// LoadOptions are the options of Load.
type LoadOptions struct {
	// Fault is the fault's name, which says what the load is like.
	Fault string
	// Every hits every call.
	Every bool
	// Addr is the server's.
	Addr string
	// For is how long to load; 0 is until the context is done.
	For time.Duration
	// Closed makes the next call as soon as one is done, on ClosedCallers
	// goroutines: for ratios of throughput. Otherwise calls come at a fixed mean
	// rate, at random, whether or not others are done.
	Closed bool
	// Rate, if it is not 0, replaces the fault's calls a second.
	Rate float64
}

// ClosedCallers is how many calls of a closed loop are under way.
const ClosedCallers = 8

const (
	openCallers = 64              // the most calls of an open loop under way
	drainTime   = 5 * time.Second // for calls under way when the load ends
)

// job is a call to make.
type job struct {
	at  time.Time // when it was to be made
	hit bool
}

// Load calls the service for a while and gives what came of it. That ctx is done
// is no error. Latencies of an open loop count from when the call was to be made.
func Load(ctx context.Context, o LoadOptions) (LoadResult, error) {
	f, err := Lookup(o.Fault)
	if err != nil {
		return LoadResult{}, err
	}
	l := &loader{fault: f, opts: o}
	defer l.close()
	for range f.Conns {
		c, err := pipeline.Dial(ctx, "tcp", o.Addr)
		if err != nil {
			return LoadResult{}, err
		}
		l.conns = append(l.conns, c)
	}
	if o.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.For)
		defer cancel()
	}
	// Calls under way when the load ends are completed, or given up after a while.
	calls, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(drainTime):
			giveUp()
		case <-calls.Done():
		}
	})
	defer stop()

	start, cpu := time.Now(), cpuTime()
	var tallies []*tally
	if o.Closed {
		tallies = l.closed(ctx, calls)
	} else {
		tallies = l.open(ctx, calls)
	}
	r := sum(tallies, time.Since(start))
	r.Fault, r.CPU = f.Name, cpuTime()-cpu
	return r, nil
}

type loader struct {
	fault Fault
	opts  LoadOptions
	conns []*pipeline.Client
}

func (l *loader) close() {
	for _, c := range l.conns {
		c.Close()
	}
}

// callers runs n goroutines, which are spread over the connections.
func (l *loader) callers(n int, run func(i int, conn *pipeline.Client, t *tally)) (tallies []*tally, wait func()) {
	var wg sync.WaitGroup
	for i := range n {
		t := &tally{}
		tallies = append(tallies, t)
		wg.Add(1)
		go func() {
			defer wg.Done()
			run(i, l.conns[i%len(l.conns)], t)
		}()
	}
	return tallies, wg.Wait
}

func (l *loader) closed(ctx, calls context.Context) []*tally {
	tallies, wait := l.callers(ClosedCallers, func(i int, conn *pipeline.Client, t *tally) {
		rnd := rand.New(rand.NewPCG(uint64(i), 1))
		for ctx.Err() == nil {
			if !l.call(calls, conn, job{time.Now(), l.hit(rnd)}, t) {
				return
			}
		}
	})
	wait()
	return tallies
}

func (l *loader) open(ctx, calls context.Context) []*tally {
	jobs := make([]chan job, len(l.conns))
	for i := range jobs {
		jobs[i] = make(chan job, 1024)
	}
	tallies, wait := l.callers(openCallers, func(i int, conn *pipeline.Client, t *tally) {
		for j := range jobs[i%len(jobs)] {
			l.call(calls, conn, j, t)
		}
	})
	l.schedule(ctx, jobs)
	for _, c := range jobs {
		close(c)
	}
	wait()
	return tallies
}

// schedule makes the jobs when they are due, connection by connection in turn.
func (l *loader) schedule(ctx context.Context, jobs []chan job) {
	rate, bunch := l.fault.Rate, max(1, l.fault.Bunch)
	if l.opts.Every {
		rate = l.fault.EveryRate
	}
	if l.opts.Rate > 0 {
		rate = l.opts.Rate
	}
	rnd := rand.New(rand.NewPCG(2, 3))
	turn := 0
	p := newPacer()
	defer p.close()
	// Plain calls and bunches of hit calls come independently of one another. Plain
	// calls and single hit calls come at random, as from many clients; bunches come
	// about evenly, so that none meets the one before it.
	hits, plain := rate*l.share()/float64(bunch), rate*(1-l.share())
	random := func() float64 { return rnd.ExpFloat64() }
	even := random
	if bunch > 1 {
		even = func() float64 { return 0.8 + 0.4*rnd.Float64() }
	}
	start := time.Now()
	nextPlain, nextHit := after(start, random(), plain), after(start, even(), hits)
	for {
		j, n := job{at: nextPlain}, 1
		if nextHit.Before(nextPlain) {
			j, n = job{at: nextHit, hit: true}, bunch
			nextHit = after(nextHit, even(), hits)
		} else {
			nextPlain = after(nextPlain, random(), plain)
		}
		if !p.until(ctx, j.at) {
			return
		}
		for range n {
			select {
			case jobs[turn%len(jobs)] <- j:
			case <-ctx.Done():
				return
			}
			turn++
		}
	}
}

// after gives the time of the next of so many events a second.
func after(t time.Time, gap, rate float64) time.Time {
	if rate <= 0 {
		return t.Add(1 << 62) // none
	}
	return t.Add(time.Duration(gap / rate * 1e9))
}

// share is the share of calls that are hit.
func (l *loader) share() float64 {
	switch {
	case l.fault.External:
		return 0
	case l.opts.Every:
		return 1
	}
	return HitShare
}

func (l *loader) hit(rnd *rand.Rand) bool { return rnd.Float64() < l.share() }

// call makes a call; it says whether it was answered.
func (l *loader) call(ctx context.Context, conn *pipeline.Client, j job, t *tally) bool {
	method, req := MethodGet, []byte{requestPlain}
	if j.hit {
		req[0] = requestHit
		if l.fault.Report {
			method = MethodReport
		}
	}
	_, err := conn.Call(ctx, method, req)
	t.add(time.Since(j.at), j.hit, err)
	return err == nil
}
