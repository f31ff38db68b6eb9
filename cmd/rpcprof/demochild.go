package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rpcprof/toolkit/examples/faults"
)

// The demo's processes. They are the service and the load of examples/faults,
// which can as well be started by hand.

type demoServerCmd struct {
	Fault string
	Dir   string
}

func (d *demoServerCmd) Run(ctx context.Context, con *console) error {
	o := faults.ServerOptions{Fault: d.Fault, Dir: d.Dir, CPU: 0, Addr: "127.0.0.1:0"}
	return faults.Serve(ctx, o, func(addr string) { fmt.Fprintln(con.out, "ready", addr) })
}

type demoLoadCmd struct {
	Fault, Addr   string
	Every, Closed bool
	For           time.Duration
}

func (d *demoLoadCmd) Run(ctx context.Context, con *console) error {
	if f, err := faults.Lookup(d.Fault); err == nil && f.Hog {
		_ = faults.Pin(1) // beside the server and what disturbs it, where there is a second CPU
	}
	r, err := faults.Load(ctx, faults.LoadOptions{Fault: d.Fault, Every: d.Every, Addr: d.Addr, For: d.For, Closed: d.Closed})
	if err != nil {
		return err
	}
	return writeJSON(con.out, r)
}

type demoHogCmd struct{ Every bool }

func (d *demoHogCmd) Run(ctx context.Context) error {
	return faults.Hog(ctx, faults.HogOptions{CPU: 0, Every: d.Every})
}
