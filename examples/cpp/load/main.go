// Command load calls the C++ server: mostly Get, every fourth call Put.
//
//	load -addr 127.0.0.1:7070 -rate 500 -for 30s
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"

	"github.com/rpcprof/toolkit/rpcprof/pipeline"
)

const (
	callTimeout = 5 * time.Second
	maxInFlight = 10_000 // calls beyond are counted as errors and not made
	keys        = 100
)

func main() {
	addr := flag.String("addr", "127.0.0.1:7070", "address of the server")
	rate := flag.Int("rate", 500, "calls a second")
	conns := flag.Int("conns", 4, "connections")
	length := flag.Duration("for", 30*time.Second, "how long to call")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := load(ctx, *addr, *rate, *conns, *length); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		stop()
		os.Exit(1)
	}
}

// load calls at a fixed rate, however long the server takes to answer: a server
// that stalls is charged for all calls that came meanwhile.
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
	for i := range keys {
		if _, err := clients[0].Call(ctx, "cpp.Store/Put", fmt.Appendf(nil, "key%d=value", i)); err != nil {
			return err
		}
	}
	var gets, puts tally
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxInFlight)
	begin := time.Now()
	for i := range int(length.Seconds() * float64(rate)) {
		due := begin.Add(time.Duration(float64(i) / float64(rate) * float64(time.Second)))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		t, method, req := &gets, "cpp.Store/Get", fmt.Appendf(nil, "key%d", i%keys)
		if i%4 == 3 {
			t, method, req = &puts, "cpp.Store/Put", append(req, "=value"...)
		}
		select {
		case slots <- struct{}{}:
		default:
			t.add(0, errors.New("too many calls in flight"))
			continue
		}
		made := time.Now()
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
			defer cancel()
			_, err := clients[i%conns].Call(ctx, method, req)
			t.add(time.Since(made), err)
			<-slots
		})
	}
	wg.Wait()
	gets.print("Get")
	puts.print("Put")
	return errors.Join(gets.first, puts.first)
}

// tally is what the calls of a method came to.
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

func (t *tally) print(name string) {
	slices.Sort(t.took)
	fmt.Printf("%s: %d calls, %d errors", name, len(t.took)+t.errors, t.errors)
	if n := len(t.took); n > 0 {
		fmt.Printf(", p50 %v, p99 %v", t.took[n/2].Round(time.Microsecond), t.took[n*99/100].Round(time.Microsecond))
	}
	fmt.Println()
}
