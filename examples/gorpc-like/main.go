// Command gorpc-like is a home-made RPC transport that takes rpcprof's stamps by
// explicit calls. It has the structure of valyala/gorpc: a reader a connection, a
// goroutine a call, replies written under a lock and flushed when nobody else waits
// for it. In server.go the lines that end in "//+" are what its owner adds, and all
// of stamps.go; without them it works as before.
//
//	go build -o bin/ ./cmd/rpcprof ./examples/gorpc-like
//	bin/gorpc-like -load &                # serves, and calls itself 500 times a second
//	sudo bin/rpcprof attach $! --for 5s   # or as the same user, without sudo
//
// The report gives store.Store/Get, whose calls now and then find the cache's lock
// held, and store.Store/Put, which holds it while it sleeps.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:7072", "address to serve on")
	self := flag.Bool("load", false, "call itself as well")
	rate := flag.Int("rate", 500, "calls a second, with -load")
	length := flag.Duration("for", 0, "how long to run; 0: until interrupted")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *length > 0 {
		ctx, stop = context.WithTimeout(ctx, *length)
		defer stop()
	}
	if !*self {
		*rate = 0
	}
	if err := run(ctx, *addr, *rate); err != nil {
		fmt.Fprintln(os.Stderr, "gorpc-like:", err)
		stop()
		os.Exit(1)
	}
}

// run serves until ctx ends, and calls itself at a rate that is not 0.
func run(ctx context.Context, addr string, rate int) error {
	prof := rpcprof.New(rpcprof.Config{Service: "store"}) //+
	defer prof.Close()                                    //+
	s := newServer(prof)
	var cache cache
	s.handle("store.Store/Get", cache.get)
	s.handle("store.Store/Put", cache.put)

	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	fmt.Printf("pid %d serves store.Store on %s; look inside with: rpcprof attach %d\n", os.Getpid(), l.Addr(), os.Getpid())
	var loading sync.WaitGroup
	if rate > 0 {
		loading.Go(func() {
			if err := load(ctx, l.Addr().String(), rate); err != nil {
				fmt.Fprintln(os.Stderr, "gorpc-like: load:", err)
			}
		})
	}
	err = s.serve(l.(*net.TCPListener))
	loading.Wait()
	return err
}

// cache is what the methods work on.
type cache struct {
	mu    sync.RWMutex
	value []byte
}

func (c *cache) get([]byte) ([]byte, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.value, nil
}

func (c *cache) put(req []byte) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	time.Sleep(4 * time.Millisecond) // as if it wrote through
	c.value = req
	return nil, nil
}

// load calls the service until ctx ends, on two connections, one call in 100 a Put.
// No call waits for those before it.
func load(ctx context.Context, addr string, rate int) error {
	var clients [2]*client
	for i := range clients {
		c, err := dial(addr)
		if err != nil {
			return err
		}
		defer c.close()
		clients[i] = c
	}
	every := time.NewTicker(time.Second / time.Duration(rate))
	defer every.Stop()
	failed := make(chan error, 1)
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-every.C:
		}
		name := "store.Store/Get"
		if i%100 == 0 {
			name = "store.Store/Put"
		}
		go func() {
			if _, err := clients[i%len(clients)].call(name, []byte("value")); err != nil && !errors.Is(err, errClosed) {
				select {
				case failed <- err:
				default:
				}
			}
		}()
	}
}
