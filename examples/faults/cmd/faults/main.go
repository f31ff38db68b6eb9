// Command faults runs the service of package faults, the load on it, and the
// processes that disturb it:
//
//	faults server -fault lock -addr 127.0.0.1:7070
//	faults load -fault lock -addr 127.0.0.1:7070 -for 10s
//	faults hog -cpu 1
//
// The server prints its address and process ID when it is ready and what it
// counted, as JSON, when it is interrupted; the load prints its result as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/rpcprof/toolkit/examples/faults"
)

const usage = `usage: faults server -fault NAME [-addr ADDR] [-dir DIR] [-cpu N]
       faults load -fault NAME -addr ADDR [-every] [-closed] [-for DURATION] [-cpu N]
       faults hog -cpu N [-every] [-for DURATION]
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return flag.ErrHelp
	}
	fs := flag.NewFlagSet("faults "+args[0], flag.ContinueOnError)
	fault := fs.String("fault", "none", "the fault: "+strings.Join(faults.Names(), ", "))
	addr := fs.String("addr", "127.0.0.1:7070", "the server's TCP address")
	every := fs.Bool("every", false, "hit every call; hog: burn all the time")
	dur := fs.Duration("for", 0, "how long; 0 is until interrupted")
	closed := fs.Bool("closed", false, "load: as fast as it goes")
	rate := fs.Float64("rate", 0, "load: calls a second, instead of the fault's")
	dir := fs.String("dir", "", "server with fault disk: a directory on a real disk")
	cpu := fs.Int("cpu", -1, "the CPU to run on; server: with fault hog alone")
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if *dur > 0 && args[0] != "load" { // the load also has to wait for its last calls
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *dur)
		defer cancel()
	}
	switch args[0] {
	case "server":
		return server(ctx, faults.ServerOptions{
			Fault: *fault, Every: *every, Addr: *addr, Dir: *dir, CPU: *cpu,
		})
	case "load":
		if *cpu >= 0 {
			if err := faults.Pin(*cpu); err != nil {
				return err
			}
		}
		return load(ctx, faults.LoadOptions{
			Fault: *fault, Every: *every, Addr: *addr, For: *dur, Closed: *closed, Rate: *rate,
		})
	case "hog":
		if *cpu < 0 {
			return errors.New("hog: which -cpu?")
		}
		return faults.Hog(ctx, faults.HogOptions{CPU: *cpu, Every: *every})
	}
	fmt.Fprint(os.Stderr, usage)
	return fmt.Errorf("unknown command %q", args[0])
}

func server(ctx context.Context, o faults.ServerOptions) error {
	var stats faults.Stats
	o.Stats = &stats
	err := faults.Serve(ctx, o, func(addr string) {
		fmt.Printf("ready %s pid %d\n", addr, os.Getpid())
	})
	if err != nil {
		return err
	}
	return print(stats)
}

func load(ctx context.Context, o faults.LoadOptions) error {
	r, err := faults.Load(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d calls, %d errors, p50 %v, p99 %v\n", r.Calls, r.Errors,
		r.P50.Round(10*time.Microsecond), r.P99.Round(10*time.Microsecond))
	return print(r)
}

func print(v any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
