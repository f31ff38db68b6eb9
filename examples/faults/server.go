package faults

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/pipeline"
)

// ServerOptions are the options of Serve.
type ServerOptions struct {
	// Fault is the fault's name.
	Fault string
	// Every says that the load is to hit every call. It changes nothing here: the
	// load decides.
	Every bool
	// Addr is the TCP address to listen on; "" is a free port of 127.0.0.1.
	Addr string
	// Dir is for disk: a directory on a real disk; "" is os.TempDir().
	Dir string
	// CPU is for hog alone: the CPU that all threads of this process are bound to,
	// or -1 for none. The binding is not undone.
	CPU int
	// Stats, if it is not nil, is filled before Serve returns.
	Stats *Stats
}

// Stats is what the service counted.
type Stats struct {
	Fault   string `json:"fault"`
	Gets    int64  `json:"gets"`
	Reports int64  `json:"reports"`
	Hit     int64  `json:"hit"` // calls that the load said are hit, and Reports
	// Injected calls were slowed by the handler, by InjectedNS in total: asleep,
	// writing, or waiting for and holding the mutex.
	Injected     int64 `json:"injected"`
	InjectedNS   int64 `json:"injected_ns"`
	InjectedMean int64 `json:"injected_mean_ns"`
	// LockWaitNS is the part of InjectedNS spent waiting for the mutex.
	LockWaitNS int64 `json:"lock_wait_ns"`
	// CPUNS is the CPU time of the process while it served, and WallNS how long
	// that was.
	CPUNS  int64 `json:"cpu_ns"`
	WallNS int64 `json:"wall_ns"`
}

func (s *store) stats() Stats {
	st := Stats{
		Fault: s.fault.Name, Gets: s.gets.Load(), Reports: s.reports.Load(), Hit: s.hitCalls.Load(),
		Injected: s.injected.Load(), InjectedNS: s.injectedNS.Load(), LockWaitNS: s.waitedNS.Load(),
	}
	if st.Injected > 0 {
		st.InjectedMean = st.InjectedNS / st.Injected
	}
	return st
}

// Serve runs the service until ctx is done, and then gives nil. It calls ready,
// if it is not nil, with the address once calls can be made, and removes what it
// made.
func Serve(ctx context.Context, o ServerOptions, ready func(addr string)) (err error) {
	f, err := Lookup(o.Fault)
	if err != nil {
		return err
	}
	s := newStore(f) // before any binding: calibration wants a CPU to itself
	if f.Name == "hog" && o.CPU >= 0 {
		if err := Pin(o.CPU); err != nil {
			return err
		}
	}
	if f.Name == "disk" {
		if s.file, err = os.CreateTemp(o.Dir, "faults-disk-*"); err != nil {
			return err
		}
		defer os.Remove(s.file.Name())
		defer s.file.Close()
	}
	addr := o.Addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	prof := rpcprof.New(rpcprof.Config{Service: "demo"})
	defer prof.Close()
	srv := pipeline.NewServer(pipeline.ServerConfig{Profiler: prof, Workers: f.Workers})
	srv.Handle(MethodGet, s.get)
	srv.Handle(MethodReport, s.report)

	start, cpu := time.Now(), cpuTime()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	if ready != nil {
		ready(l.Addr().String())
	}
	select {
	case <-ctx.Done():
		_ = l.Close() // even if srv had not come to serve it
		_ = srv.Close()
		<-served
	case err = <-served:
		_ = srv.Close()
		err = fmt.Errorf("serve: %w", err)
	}
	if o.Stats != nil {
		*o.Stats = s.stats()
		o.Stats.CPUNS, o.Stats.WallNS = int64(cpuTime()-cpu), int64(time.Since(start))
	}
	return err
}
