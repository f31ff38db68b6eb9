// Command pipeline-echo is a service that embeds rpcprof in the plainest way.
//
//	pipeline-echo                                  # serves, until interrupted
//	pipeline-echo -load 127.0.0.1:7070 -rate 1000  # calls it
//	pipeline-echo -debug 127.0.0.1:7071            # serves, and a page about its calls
//
// While both run, "rpcprof attach PID" shows where the calls' time goes.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/debug"
	"github.com/rpcprof/toolkit/rpcprof/pipeline"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:7070", "address to serve on")
	page := flag.String("debug", "", "address for a page about the calls, http://ADDR/debug/rpcprof/; none when empty")
	workers := flag.Int("workers", 4, "handlers that run at once; 0: on the connections' readers")
	target := flag.String("load", "", "be the load: the address of the service to call")
	rate := flag.Int("rate", 1000, "calls a second, with -load")
	conns := flag.Int("conns", 4, "connections, with -load")
	length := flag.Duration("for", 30*time.Second, "how long to call, with -load")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *target != "" {
		err = load(ctx, *target, *rate, *conns, *length)
	} else {
		err = serve(ctx, *addr, *page, *workers)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pipeline-echo:", err)
		stop()
		os.Exit(1)
	}
}

// serve is all that a service does to be profiled: make a Profiler and give it
// to the server.
func serve(ctx context.Context, addr, page string, workers int) error {
	prof := rpcprof.New(rpcprof.Config{Service: "echo"})
	defer prof.Close()
	if err := prof.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "pipeline-echo: profiling is degraded:", err)
	}
	srv := pipeline.NewServer(pipeline.ServerConfig{Profiler: prof, Workers: workers})
	srv.Handle("echo.Echo/Say", say)

	if page != "" {
		http.Handle("/debug/rpcprof/", http.StripPrefix("/debug/rpcprof", debug.Handler(prof, debug.Options{})))
		go func() { fmt.Fprintln(os.Stderr, "pipeline-echo:", http.ListenAndServe(page, nil)) }()
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	fmt.Printf("pid %d serves echo.Echo/Say on %s; look inside with: rpcprof attach %d\n", os.Getpid(), l.Addr(), os.Getpid())
	if err := srv.Serve(l); !errors.Is(err, pipeline.ErrServerClosed) {
		return err
	}
	return srv.Close() // waits for what still runs
}

// say returns its request after some work, so that there is something to see.
func say(_ context.Context, req []byte) ([]byte, error) {
	work()
	return req, nil
}

// work keeps a CPU busy for about 200 µs.
func work() {
	var sum [sha256.Size]byte
	for range rounds {
		sum = sha256.Sum256(sum[:])
	}
}

// rounds is how often work hashes. It is measured once, so that a call costs the
// same CPU time whatever else the machine does.
var rounds = func() int {
	best := time.Hour
	for range 20 {
		var sum [sha256.Size]byte
		begin := time.Now()
		for range 500 {
			sum = sha256.Sum256(sum[:])
		}
		best = min(best, time.Since(begin))
	}
	return int(500 * 200 * time.Microsecond / max(best, 1))
}()
