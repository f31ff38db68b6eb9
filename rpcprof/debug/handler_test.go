package debug

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	pp "github.com/google/pprof/profile"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/blame"
)

func profiler(t testing.TB) *rpcprof.Profiler {
	t.Helper()
	p := rpcprof.New(rpcprof.Config{Service: "test"})
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// call makes a call that ends now and whose stages, from queue to write, took so long.
func call(p *rpcprof.Profiler, method string, o rpcprof.Outcome, stages ...time.Duration) {
	at := rpcprof.Now()
	for _, d := range stages {
		at -= int64(d)
	}
	c := p.Begin(p.Method(method), nil, at)
	for i, s := range []rpcprof.Stamp{rpcprof.Dequeue, rpcprof.Handler, rpcprof.Handled, rpcprof.Write, rpcprof.Sent}[:len(stages)] {
		at += int64(stages[i])
		c.StampAt(s, at)
	}
	c.End(o)
}

// slowService has a method whose slow calls lose 20 ms in the queue.
func slowService(p *rpcprof.Profiler) {
	const us, ms = time.Microsecond, time.Millisecond
	for i := range 1000 {
		if i%50 == 0 {
			call(p, "shop.Shop/Buy", rpcprof.OK, 20*ms, us, 200*us, us, 5*us)
			continue
		}
		call(p, "shop.Shop/Buy", rpcprof.OK, 10*us, us, 200*us, us, 5*us)
	}
	for range 7 {
		call(p, "shop.Shop/Sell", rpcprof.Expired, 3*ms, us, 9*ms, us, us)
	}
}

func get(t testing.TB, h http.Handler, path string) (int, []byte, http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	b, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, b, w.Header()
}

// The page says what is slow, and what came to nothing and where.
func TestPage(t *testing.T) {
	p := profiler(t)
	slowService(p)
	c := p.Begin(p.Method("shop.Shop/Hang"), nil, 0)
	defer c.End(rpcprof.OK)
	code, b, h := get(t, Handler(p, Options{}), "/")
	if code != http.StatusOK || !strings.HasPrefix(h.Get("Content-Type"), "text/html") {
		t.Fatalf("%d %v", code, h)
	}
	for _, want := range []string{
		"shop.Shop/Buy", "shop.Shop/Sell", "in queue", "7 expired, most in handler", "In flight: 1", "shop.Shop/Hang",
		"Slowest of the last minutes", "Last that did not end well", `href="profile?seconds=5"`,
	} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("the page has no %q", want)
		}
	}
}

// The JSON is the report that attach writes; its sums add up.
func TestJSON(t *testing.T) {
	p := profiler(t)
	slowService(p)
	_, b, _ := get(t, Handler(p, Options{SLO: time.Millisecond}), "/json")
	var r blame.Report
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if len(r.Methods) != 2 || r.Methods[0].Calls != 1000 || r.Methods[0].Slow.Calls != 20 || r.Methods[1].Outcomes["expired"] != 7 {
		t.Errorf("methods %+v", r.Methods)
	}
	for _, m := range r.Methods {
		for name, s := range m.Slow.Stages {
			var sum int64
			for _, ns := range s.Causes {
				sum += ns
			}
			if sum != s.WallNS {
				t.Errorf("%s %s: causes add up to %d of %d", m.Method, name, sum, s.WallNS)
			}
		}
	}
	if len(r.Verdicts) == 0 || r.Verdicts[0].Method != "shop.Shop/Buy" || r.Verdicts[0].Stage != "queue" {
		t.Errorf("verdicts %+v", r.Verdicts)
	}
	if len(r.Limits) == 0 || r.Targets[0].Privileges != "in process" {
		t.Errorf("limits %q, target %+v", r.Limits, r.Targets)
	}
}

// A window has the calls that finish in it and no others, and go tool pprof can
// read what they took.
func TestProfile(t *testing.T) {
	p := profiler(t)
	slowService(p)
	h := Handler(p, Options{})
	stop, done := make(chan bool), make(chan bool)
	made := 0
	go func() {
		defer close(done)
		time.Sleep(50 * time.Millisecond) // the window has begun
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				call(p, "shop.Shop/Later", rpcprof.OK, time.Millisecond)
				made++
			}
		}
	}()
	code, b, _ := get(t, h, "/profile?seconds=0.3")
	close(stop)
	<-done
	prof, err := pp.Parse(bytes.NewReader(b))
	if err != nil || code != http.StatusOK {
		t.Fatalf("%d, %v: %.100q", code, err, b)
	}
	if err := prof.CheckValid(); err != nil {
		t.Fatal(err)
	}
	var calls, wall int64
	for _, s := range prof.Sample {
		if s.Label["method"][0] != "shop.Shop/Later" {
			t.Errorf("a call of %v is in the window", s.Label)
		}
		calls += s.Value[0]
		wall += s.Value[1]
	}
	if calls == 0 || calls > int64(made) || wall != calls*int64(time.Millisecond) {
		t.Errorf("%d calls of %v in all, %d were made", calls, time.Duration(wall), made)
	}
}

// What is asked for wrongly, too often or of nothing gets one line.
func TestRefusals(t *testing.T) {
	h := Handler(profiler(t), Options{})
	for _, path := range []string{"/json?seconds=0", "/json?seconds=-1", "/?seconds=61", "/profile?seconds=NaN", "/profile?seconds=" + strings.Repeat("9", 1000)} {
		if code, b, _ := get(t, h, path); code != http.StatusBadRequest || bytes.Count(b, []byte("\n")) != 1 || len(b) > 200 {
			t.Errorf("%.40s: %d %.300q", path, code, b)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
	if code, _, _ := get(t, h, "/elsewhere"); code != http.StatusNotFound {
		t.Errorf("another path: %d", code)
	}
	none := Handler(nil, Options{})
	if code, b, _ := get(t, none, "/"); code != http.StatusOK || !bytes.Contains(b, []byte("nothing is recorded")) {
		t.Errorf("nil: %d %q", code, b)
	}
	if code, _, _ := get(t, none, "/json"); code != http.StatusServiceUnavailable {
		t.Errorf("nil: %d", code)
	}
}

// No more than two look at once; who goes away is not looked for any longer, and
// nothing is left of it.
func TestBusy(t *testing.T) {
	before := runtime.NumGoroutine()
	p := profiler(t)
	during := runtime.NumGoroutine()
	h := Handler(p, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan bool)
	for range collectors {
		go func() {
			for refused := true; refused; { // the test itself may be in the way
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/json?seconds=60", nil))
				refused = w.Code == http.StatusTooManyRequests
			}
			done <- true
		}()
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		code, _, _ := get(t, h, "/json")
		if code == http.StatusTooManyRequests {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a third was let in: %d", code)
		}
	}
	cancel()
	for range collectors {
		<-done
	}
	if code, _, _ := get(t, h, "/json"); code != http.StatusOK {
		t.Errorf("afterwards: %d", code)
	}
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > during; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines before, %d with a Profiler, %d after", before, during, runtime.NumGoroutine())
		}
	}
}

// Names are foreign and do not become part of the page.
func TestEscaping(t *testing.T) {
	p := profiler(t)
	call(p, `<script>alert("x")</script>`, rpcprof.Error, time.Millisecond)
	c := p.Begin(p.Method(`"><img src=x onerror=y>`), nil, 0)
	defer c.End(rpcprof.OK)
	_, b, _ := get(t, Handler(p, Options{}), "/")
	if bytes.Contains(b, []byte("<script")) || bytes.Contains(b, []byte("<img")) {
		t.Error("a method's name is markup")
	}
	if !bytes.Contains(b, []byte("&lt;script&gt;")) {
		t.Error("the method is not on the page")
	}
}

// A page of 256 methods and full rings.
func BenchmarkPage(b *testing.B) {
	p := profiler(b)
	for i := range 20_000 {
		call(p, fmt.Sprintf("bench.Bench/Method%d", i%256), rpcprof.OK, time.Microsecond, time.Microsecond, time.Duration(i)*time.Microsecond, time.Microsecond, time.Microsecond)
	}
	h := Handler(p, Options{})
	b.ReportAllocs()
	for b.Loop() {
		if code, _, _ := get(b, h, "/"); code != http.StatusOK {
			b.Fatal(code)
		}
	}
}
