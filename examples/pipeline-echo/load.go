package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rpcprof/toolkit/rpcprof/pipeline"
)

const (
	callTimeout = 5 * time.Second
	maxInFlight = 20_000 // calls beyond are counted as errors and not made
)

// load calls the service at a fixed rate, however long it takes to answer: a
// call never waits for an earlier one, so a service that stalls is charged for
// all calls that came meanwhile. A call's latency counts from when it is made,
// not from when it was due: the sleep between calls may be 1 ms too long.
func load(ctx context.Context, addr string, rate, conns int, length time.Duration) error {
	if rate < 1 || conns < 1 || length <= 0 {
		return errors.New("-rate, -conns and -for must be positive")
	}
	clients := make([]*pipeline.Client, conns)
	for i := range clients {
		c, err := pipeline.Dial(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		clients[i] = c
	}

	var t tally
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxInFlight)
	begin := time.Now()
	total := int(length.Seconds() * float64(rate))
	for i := range total {
		due := begin.Add(time.Duration(float64(i) / float64(rate) * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			break
		}
		select {
		case slots <- struct{}{}:
		default:
			t.add(0, errors.New("too many calls in flight"))
			continue
		}
		made := time.Now()
		wg.Go(func() {
			err := call(clients[i%conns], i)
			t.add(time.Since(made), err)
			<-slots
		})
	}
	wg.Wait()
	t.print(time.Since(begin))
	if t.errors > 0 {
		return fmt.Errorf("%d calls failed, the first with: %w", t.errors, t.first)
	}
	return nil
}

// call makes a call and checks its reply.
func call(c *pipeline.Client, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	req := fmt.Appendf(nil, "call %d", i)
	got, err := c.Call(ctx, "echo.Echo/Say", req)
	if err == nil && !bytes.Equal(got, req) {
		err = fmt.Errorf("%q was answered with %q", req, got)
	}
	return err
}

// tally is what the calls came to.
type tally struct {
	mu     sync.Mutex
	took   []time.Duration // of those that succeeded
	errors int
	first  error
}

func (t *tally) add(took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.took = append(t.took, took)
		return
	}
	if t.errors++; t.first == nil {
		t.first = err
	}
}

func (t *tally) print(length time.Duration) {
	slices.Sort(t.took)
	fmt.Printf("%d calls in %v, %d errors", len(t.took)+t.errors, length.Round(time.Millisecond), t.errors)
	if n := len(t.took); n > 0 {
		fmt.Printf(", p50 %v, p99 %v", t.took[n/2].Round(time.Microsecond), t.took[n*99/100].Round(time.Microsecond))
	}
	fmt.Println()
}
