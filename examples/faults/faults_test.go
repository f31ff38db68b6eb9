package faults

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a service until the returned function is called, which gives what it
// counted.
func serve(t *testing.T, o ServerOptions) (addr string, stop func() Stats) {
	t.Helper()
	var st Stats
	o.Stats = &st
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- Serve(ctx, o, func(addr string) { ready <- addr }) }()
	select {
	case addr = <-ready:
	case err := <-done:
		cancel()
		t.Fatal(err)
	}
	return addr, func() Stats {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		return st
	}
}

func TestEachFault(t *testing.T) {
	least := map[string]time.Duration{
		"lock": LockHold, "pool": ReportTime, "inline": ReportTime, "sleep": SleepTime, "disk": DiskTime,
	}
	for _, f := range Faults() {
		t.Run(f.Name, func(t *testing.T) {
			dir := t.TempDir()
			addr, stop := serve(t, ServerOptions{Fault: f.Name, Dir: dir, CPU: -1})
			r, err := Load(t.Context(), LoadOptions{Fault: f.Name, Addr: addr, For: time.Second})
			st := stop()
			if err != nil || r.Errors != 0 || r.Calls < int64(f.Rate)/2 {
				t.Fatalf("%+v, error %v", r, err)
			}
			t.Logf("%+v", r)
			t.Logf("%+v", st)
			if st.Gets+st.Reports != r.Calls || st.Hit != r.Hits {
				t.Errorf("the service counted %+v, the load %+v", st, r)
			}
			if f.External {
				if r.Hits != 0 || st.Injected != 0 {
					t.Errorf("%d calls are hit", r.Hits)
				}
				return
			}
			if share := float64(r.Hits) / float64(r.Calls); share < 0.04 || share > 0.2 {
				t.Errorf("%.3f of the calls are hit", share)
			}
			if st.Injected != st.Hit || time.Duration(st.InjectedMean) < least[f.Name] {
				t.Errorf("%+v, want at least %v for each hit call", st, least[f.Name])
			}
			if f.Name == "lock" && st.LockWaitNS < 2*st.Injected*int64(LockHold) {
				t.Errorf("waiting does not dominate holding: %+v", st)
			}
			if left, _ := os.ReadDir(dir); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestEvery(t *testing.T) {
	for _, name := range []string{"lock", "pool", "sleep"} {
		t.Run(name, func(t *testing.T) {
			addr, stop := serve(t, ServerOptions{Fault: name, Every: true})
			r, err := Load(t.Context(), LoadOptions{Fault: name, Every: true, Addr: addr, For: 500 * time.Millisecond})
			stop()
			if err != nil || r.Errors != 0 || r.Calls == 0 || r.Hits != r.Calls {
				t.Errorf("%+v, error %v", r, err)
			}
		})
	}
}

func TestClosedLoop(t *testing.T) {
	throughput := func(every bool) float64 {
		addr, stop := serve(t, ServerOptions{Fault: "sleep"})
		defer stop()
		r, err := Load(t.Context(), LoadOptions{
			Fault: "sleep", Every: every, Addr: addr, For: 500 * time.Millisecond, Closed: true,
		})
		if err != nil || r.Errors != 0 || r.Calls == 0 {
			t.Fatalf("%+v, error %v", r, err)
		}
		return r.PerSecond
	}
	some, all := throughput(false), throughput(true)
	if limit := ClosedCallers / SleepTime.Seconds(); all > limit || some < all {
		t.Errorf("%.0f calls/s, and %.0f if all are hit: at most %.0f", some, all, limit)
	}
}

func TestLoadEndsWithItsContext(t *testing.T) {
	addr, stop := serve(t, ServerOptions{})
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	r, err := Load(ctx, LoadOptions{Addr: addr})
	if err != nil || r.Errors != 0 || r.Calls == 0 || r.Wall > 3*time.Second {
		t.Errorf("%+v, error %v", r, err)
	}
}

func TestUnknownFault(t *testing.T) {
	if err := Serve(t.Context(), ServerOptions{Fault: "gremlin"}, nil); err == nil {
		t.Error("Serve took it")
	}
	if _, err := Load(t.Context(), LoadOptions{Fault: "gremlin"}); err == nil {
		t.Error("Load took it")
	}
}

func TestQuantile(t *testing.T) {
	d := []time.Duration{1, 2, 3, 4}
	if quantile(nil, 0.5) != 0 || quantile(d, 0) != 1 || quantile(d, 0.5) != 3 || quantile(d, 1) != 4 {
		t.Error("wrong quantiles")
	}
}
