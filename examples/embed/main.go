// Command embed shows what a service adds to be profiled: three lines, which end
// in "// rpcprof". All else is what the service has anyhow: a listener, a server of
// package pipeline, a handler. One call in fifty holds the handler's lock for 5 ms.
//
//	go build -o bin/ ./cmd/rpcprof ./examples/embed
//	bin/embed -load &                     # serves, and calls itself 400 times a second
//	sudo bin/rpcprof attach $! --for 5s   # or as the same user, without sudo
//
// The verdict names the lock's line in hello, or the sleep under it.
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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/pipeline"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:7071", "address to serve on")
	self := flag.Bool("load", false, "call itself as well")
	length := flag.Duration("for", 0, "how long to run; 0: until interrupted")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *length > 0 {
		ctx, stop = context.WithTimeout(ctx, *length)
		defer stop()
	}
	if err := run(ctx, *addr, *self); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, addr string, self bool) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf("pid %d serves hello.Hello/Say on %s; look inside with: rpcprof attach %d\n", os.Getpid(), l.Addr(), os.Getpid())
	if self {
		go load(ctx, l.Addr().String())
	}
	return serve(ctx, l)
}

// serve serves until ctx ends.
func serve(ctx context.Context, l net.Listener) error {
	prof := rpcprof.New(rpcprof.Config{Service: "hello"}) // rpcprof
	defer prof.Close()                                    // rpcprof

	srv := pipeline.NewServer(pipeline.ServerConfig{
		Profiler: prof, // rpcprof
		Workers:  4,
	})
	srv.Handle("hello.Hello/Say", hello)
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	if err := srv.Serve(l); !errors.Is(err, pipeline.ErrServerClosed) {
		return err
	}
	return srv.Close() // waits for what still runs
}

var (
	greeting sync.Mutex
	greeted  int
)

// hello greets; what is slow in it, the report should say.
func hello(_ context.Context, req []byte) ([]byte, error) {
	greeting.Lock()
	defer greeting.Unlock()
	if greeted++; greeted%50 == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	return append([]byte("hello "), req...), nil
}

// load calls the service 400 times a second. A call does not wait for those before
// it, so that a slow one delays the others at the server and not here.
func load(ctx context.Context, addr string) {
	client, err := pipeline.Dial(ctx, "tcp", addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "embed: load:", err)
		return
	}
	defer client.Close()
	var failed atomic.Bool
	every := time.NewTicker(time.Second / 400)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		go func() {
			_, err := client.Call(ctx, "hello.Hello/Say", []byte("you"))
			if err != nil && ctx.Err() == nil && failed.CompareAndSwap(false, true) {
				fmt.Fprintln(os.Stderr, "embed: load:", err)
			}
		}()
	}
}
