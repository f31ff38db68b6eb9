// Command rpcprof tells where an RPC is slow, and why, with proof.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitFailed = 1 // what was asked for could not be done
	exitUsage  = 2 // it was asked for wrongly
)

type cli struct {
	Demo   demoCmd   `cmd:"" help:"A service with a known fault, a load on it, and the verdict, in one command."`
	Attach attachCmd `cmd:"" help:"Look at a running process and say where its RPCs are slow, and why."`
	Top    topCmd    `cmd:"" help:"Calls in flight, by method and stage, oldest first."`
	Doctor doctorCmd `cmd:"" help:"What works here, what does not, and the one thing to do about each."`

	DemoServer demoServerCmd `cmd:"" hidden:""`
	DemoLoad   demoLoadCmd   `cmd:"" hidden:""`
	DemoHog    demoHogCmd    `cmd:"" hidden:""`
}

// console is where a command writes. It is bound for all commands.
type console struct {
	out, err io.Writer
	outTTY   bool
	errTTY   bool
	color    bool
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr *os.File) int {
	var c cli
	exited := -1
	parser, err := kong.New(&c, kong.Name("rpcprof"),
		kong.Description("Where an RPC is slow, and why, with proof."),
		kong.UsageOnError(), kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exited = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 90}))
	if err != nil {
		fmt.Fprintln(stderr, "rpcprof:", err)
		return exitFailed
	}
	k, err := parser.Parse(args)
	if exited >= 0 { // --help
		return exited
	}
	if err != nil {
		fmt.Fprintf(stderr, "rpcprof: %v\nTry \"rpcprof --help\".\n", err)
		return exitUsage
	}
	// A reader that has seen enough, such as head, ends the command and what it has
	// started in order, not by a signal.
	signal.Ignore(syscall.SIGPIPE)
	// A second Ctrl-C is not caught, so that a command can always be ended.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() { <-ctx.Done(); stop() }()
	con := &console{out: stdout, err: stderr, outTTY: isTerminal(stdout), errTTY: isTerminal(stderr)}
	con.color = con.outTTY && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	k.BindTo(ctx, (*context.Context)(nil))
	if err := k.Run(con); err != nil {
		var u usageError
		if errors.Is(err, syscall.EPIPE) {
			return 0
		}
		fmt.Fprintln(stderr, "rpcprof:", err)
		if errors.As(err, &u) {
			return exitUsage
		}
		return exitFailed
	}
	return 0
}

// usageError is a command line that kong lets through and the command does not.
type usageError struct{ msg string }

func (e usageError) Error() string { return e.msg }
