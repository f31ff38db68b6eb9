package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rpcprof/toolkit/probes"
)

// overheadResult is what demo --overhead prints.
type overheadResult struct {
	Pairs  []overheadPair `json:"pairs"`
	Ratio  float64        `json:"throughput_ratio"` // median of the pairs
	Lowest float64        `json:"lowest"`
	High   float64        `json:"highest"`
	// ProfilerCPU and BPF are what attaching took of the machine's CPUs while attached.
	ProfilerCPU float64 `json:"profiler_cpu_share"`
	BPF         float64 `json:"bpf_share"`
}

type overheadPair struct {
	Without float64 `json:"without_per_second"`
	With    float64 `json:"with_per_second"`
	Ratio   float64 `json:"ratio"`
}

const (
	overheadPairs = 12
	overheadRound = 450 * time.Millisecond
)

// overhead alternates rounds of a closed load without and with attach. Which comes
// first alternates too, so that a drift of the machine cancels out.
func (d *demoCmd) overhead(ctx context.Context, con *console, s *stage) error {
	if _, err := s.throughput(overheadRound); err != nil { // warm-up
		return err
	}
	var r overheadResult
	for n := range overheadPairs {
		var p overheadPair
		for k := range 2 {
			if ctx.Err() != nil {
				break
			}
			var err error
			if (n+k)%2 == 0 {
				p.Without, err = s.rate()
			} else {
				p.With, err = s.rateAttached(&r)
			}
			if err != nil {
				return err
			}
		}
		if p.Without == 0 || p.With == 0 {
			break
		}
		p.Ratio = p.With / p.Without
		r.Pairs = append(r.Pairs, p)
		if con.errTTY {
			fmt.Fprintf(con.err, "\r\x1b[Kpair %d of %d: %.3f", n+1, overheadPairs, p.Ratio)
		}
	}
	if con.errTTY {
		fmt.Fprint(con.err, "\r\x1b[K")
	}
	if len(r.Pairs) == 0 {
		return fmt.Errorf("interrupted before the first pair was complete")
	}
	var ratios []float64
	for _, p := range r.Pairs {
		ratios = append(ratios, p.Ratio)
	}
	slices.Sort(ratios)
	n := len(ratios)
	r.Ratio, r.Lowest, r.High = (ratios[(n-1)/2]+ratios[n/2])/2, ratios[0], ratios[n-1]
	r.ProfilerCPU /= float64(n)
	r.BPF /= float64(n)
	if d.JSON {
		return writeJSON(con.out, r)
	}
	fmt.Fprintf(con.out, "throughput with attach / without: %.3f (median of %d pairs, %.3f to %.3f)\n", r.Ratio, n, r.Lowest, r.High)
	fmt.Fprintf(con.out, "while attached: profiler %.2f %%, BPF programs %.2f %% of the machine's CPUs\n", 100*r.ProfilerCPU, 100*r.BPF)
	for _, p := range r.Pairs {
		fmt.Fprintf(con.out, "  %8.0f calls/s without   %8.0f with   %.3f\n", p.Without, p.With, p.Ratio)
	}
	return nil
}

func (s *stage) rate() (float64, error) {
	r, err := s.throughput(overheadRound)
	return r.PerSecond, err
}

func (s *stage) rateAttached(sum *overheadResult) (float64, error) {
	c, err := probes.Attach(s.server.Process.Pid, probes.Options{})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { c.Run(ctx); close(done) }()
	rate, err := s.rate()
	stop()
	<-done
	profiler, bpf := c.Cost()
	sum.ProfilerCPU += profiler
	sum.BPF += bpf
	return rate, err
}
