//go:build linux

package cpp

import (
	"context"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/probes"
	"github.com/rpcprof/toolkit/rpcprof/blame"
	"github.com/rpcprof/toolkit/rpcprof/pipeline"
	"github.com/rpcprof/toolkit/rpcprof/profile"
)

// Attach joins the kernel's events to the calls of a C++ service by thread, and
// the verdict names what was injected, how much, and where.
func TestAttach(t *testing.T) {
	if os.Geteuid() != 0 || runtime.GOARCH != "amd64" {
		t.Skip("the kernel's evidence needs root, on amd64")
	}
	for _, tt := range []struct {
		name   string
		args   []string
		method string // of the first verdict
		stage  string
		cause  profile.Cause
		chain  profile.Cause // what those do who are in the way
		ms     float64       // that Put loses in its handler
	}{
		{"sleep", []string{"--fault", "pool", "--workers", "1", "--fault-ms", "10"}, "cpp.Store/Get", "queue", profile.Behind, profile.BlockSleep, 10},
		{"lock", []string{"--fault", "lock", "--workers", "4", "--fault-ms", "20"}, "cpp.Store/Get", "handler", profile.BlockLock, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var last string
			for range 3 { // what else the machine does may be what stands out
				s := start(t, tt.args...)
				p := attachUnderLoad(t, s)
				for _, m := range p.Methods {
					for stage, st := range m.Slow.Stages {
						var sum int64
						for _, ns := range st.Causes {
							sum += ns
						}
						if sum != st.WallNS {
							t.Errorf("%s %s: causes add up to %d, not %d", m.Method, stage, sum, st.WallNS)
						}
					}
					if put := m.Typical.Stages["handler"]; tt.ms > 0 && m.Method == "cpp.Store/Put" {
						got := float64(put.Causes[string(tt.chain)]) / float64(max(1, m.Typical.Calls)) / 1e6
						if got < 0.85*tt.ms || got > 1.15*tt.ms {
							t.Errorf("Put loses %.2f ms in %s, %.0f were injected", got, tt.chain, tt.ms)
						}
					}
				}
				vs := blame.Judge(p, blame.Options{})
				if len(vs) > 0 {
					v := vs[0]
					last = v.Sentence
					if v.Method == tt.method && v.Stage == tt.stage && v.Cause == string(tt.cause) && (tt.chain == "" ||
						v.Culprit == "cpp.Store/Put" && len(v.Chain) > 0 && v.Chain[0].Cause == string(tt.chain)) {
						return
					}
				}
			}
			t.Errorf("the first verdict is %q", last)
		})
	}
}

// attachUnderLoad looks at the server for two seconds, while it is called a few
// hundred times a second.
func attachUnderLoad(t *testing.T, s *server) *profile.Profile {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range 4 {
		c, err := pipeline.Dial(ctx, "tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			tick := time.NewTicker(15 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				method, payload := "cpp.Store/Get", "key"
				if i%4 == 0 {
					method, payload = "cpp.Store/Put", "key=value"
				}
				go func() { _, _ = c.Call(ctx, method, []byte(payload)) }()
			}
		}()
	}
	cap, err := probes.Attach(s.pid, probes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cap.Close()
	run, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	cap.Run(run)
	p := cap.Profile()
	for _, l := range p.Limits {
		if strings.Contains(l, "no kernel evidence") {
			if os.Getenv("RPCPROF_REQUIRE_PROBES") != "" {
				t.Fatalf("probes are required here: %s", l)
			}
			t.Skip(l)
		}
	}
	if len(p.Methods) != 2 {
		t.Fatalf("methods %+v; limits %v", p.Methods, p.Limits)
	}
	return p
}
