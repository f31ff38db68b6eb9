package pipeline_test

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/rpcprof/pipeline"
)

// patience bounds every wait of the tests; none of them measures time.
const patience = 30 * time.Second

// checkGoroutines fails the test when goroutines of it are left at its end. It
// is called first, so that it looks last.
func checkGoroutines(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		var now int
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if now = runtime.NumGoroutine(); now <= before {
				return
			}
		}
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines before, %d after:\n%s", before, now, buf[:runtime.Stack(buf, true)])
	})
}

// serve starts a server on the loopback and gives its address.
func serve(t testing.TB, cfg pipeline.ServerConfig, handlers map[string]pipeline.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := pipeline.NewServer(cfg)
	for name, h := range handlers {
		s.Handle(name, h)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		if err := <-done; err != pipeline.ErrServerClosed {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String()
}

func dial(t testing.TB, addr string) *pipeline.Client {
	t.Helper()
	c, err := pipeline.Dial(context.Background(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

func dialRaw(t *testing.T, addr string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	return nc
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func echo(_ context.Context, req []byte) ([]byte, error) { return req, nil }

func receive[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}
