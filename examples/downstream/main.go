// Command downstream is a frontend whose handler calls a backend, twice at once. It
// starts the backend as a process of its own. Of the backend's calls one in ten sleeps
// for 10 ms, and it has one worker, so that others wait behind these.
//
//	go build -o bin/ ./cmd/rpcprof ./examples/downstream
//	bin/downstream -load &                # serves, and calls itself 100 times a second
//	sudo bin/rpcprof attach $! --for 5s   # or as the same user, without sudo
//	bin/downstream -load -debug 127.0.0.1:7074   # http://127.0.0.1:7074/ shows the same from inside
//
// Only the frontend is looked at. Its client calls nevertheless have server.queue and
// server.handler, which the backend's replies carry, apart from the wire: back.Stock/Get
// is slow in its handler there, and back.Price/Get waits for its worker.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/debug"
	"github.com/rpcprof/toolkit/rpcprof/pipeline"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:7073", "address to serve on")
	target := flag.String("backend", "", "address of a backend that runs already; empty: start one")
	asBackend := flag.Bool("as-backend", false, "be the backend, until the standard input ends")
	page := flag.String("debug", "", "address for a page about the frontend's calls; none when empty")
	self := flag.Bool("load", false, "call itself as well")
	rate := flag.Int("rate", 100, "calls a second, with -load")
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
	var err error
	if *asBackend {
		err = runBackend(ctx, *addr)
	} else {
		err = runFrontend(ctx, *addr, *target, *page, *rate)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "downstream:", err)
		stop()
		os.Exit(1)
	}
}

// runBackend serves until ctx or the standard input ends: that is how it ends with
// the frontend that started it, however that one ends.
func runBackend(ctx context.Context, addr string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	prof := rpcprof.New(rpcprof.Config{Service: "back"})
	defer prof.Close()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return serve(ctx, newBackend(prof), l)
}

// runFrontend serves until ctx ends, and calls itself at a rate that is not 0.
func runFrontend(ctx context.Context, addr, target, page string, rate int) error {
	if target == "" {
		var err error
		var end func()
		if target, end, err = startBackend(); err != nil {
			return err
		}
		defer end()
	}
	prof := rpcprof.New(rpcprof.Config{Service: "front"})
	defer prof.Close()
	if page != "" {
		go func() {
			fmt.Fprintln(os.Stderr, "downstream:", http.ListenAndServe(page, debug.Handler(prof, debug.Options{})))
		}()
	}
	back, err := pipeline.ClientConfig{Profiler: prof}.Dial(ctx, "tcp", target)
	if err != nil {
		return err
	}
	defer back.Close()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf("pid %d serves front.Page/Get on %s; look inside with: rpcprof attach %d\n", os.Getpid(), l.Addr(), os.Getpid())
	var loading sync.WaitGroup
	defer loading.Wait()
	if rate > 0 {
		loading.Go(func() { load(ctx, l.Addr().String(), rate) })
	}
	return serve(ctx, newFrontend(prof, back), l)
}

func serve(ctx context.Context, srv *pipeline.Server, l net.Listener) error {
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	if err := srv.Serve(l); !errors.Is(err, pipeline.ErrServerClosed) {
		return err
	}
	return srv.Close() // waits for what still runs
}

// startBackend starts this program once more, as the backend, and gives its address
// and what ends it.
func startBackend() (addr string, end func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	c := exec.Command(self, "-as-backend", "-addr", "127.0.0.1:0")
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := c.Start(); err != nil {
		return "", nil, err
	}
	end = func() { _ = in.Close(); _ = c.Wait() }
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		end()
		return "", nil, fmt.Errorf("the backend does not start: %w", err)
	}
	return strings.TrimSpace(line), end, nil
}

// burst is how many calls the load makes at once: alone, none would find the
// backend's worker held by another.
const burst = 4

// load calls the frontend until ctx ends. No call waits for those before it.
func load(ctx context.Context, addr string, rate int) {
	client, err := pipeline.Dial(ctx, "tcp", addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "downstream: load:", err)
		return
	}
	defer client.Close()
	every := time.NewTicker(burst * time.Second / time.Duration(rate))
	defer every.Stop()
	var first sync.Once
	call := func() {
		if _, err := client.Call(ctx, "front.Page/Get", []byte("id")); err != nil && ctx.Err() == nil {
			first.Do(func() { fmt.Fprintln(os.Stderr, "downstream: load:", err) })
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		for range burst {
			go call()
		}
	}
}
