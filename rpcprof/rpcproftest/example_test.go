package rpcproftest_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/rpcprof/pipeline"
	"github.com/rpcprof/toolkit/rpcprof/rpcproftest"
)

// t stands for the *testing.T of a test, which an example does not have.
var t = &tester{}

// A test of a service: its handler's time is in the handler stage, and nothing of the
// call went unstamped.
func Example() {
	defer t.end()
	rec := rpcproftest.New(t)

	srv := pipeline.NewServer(pipeline.ServerConfig{Profiler: rec.Profiler(), Workers: 2})
	srv.Handle("orders.Orders/Get", func(_ context.Context, id []byte) ([]byte, error) {
		time.Sleep(time.Millisecond) // the work
		return id, nil
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	client, err := pipeline.Dial(context.Background(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer client.Close()

	if _, err := client.Call(context.Background(), "orders.Orders/Get", []byte("1")); err != nil {
		t.Fatalf("%v", err)
	}
	call := rec.Served("orders.Orders/Get")
	rpcproftest.Complete(t, call)
	rpcproftest.AtLeast(t, call, "handler", time.Millisecond)
	fmt.Println(call.Side, call.Method, call.Outcome, "with", len(call.Stages), "stages")
	// Output: server orders.Orders/Get ok with 5 stages
}

// tester is the part of a testing.T that is used here.
type tester struct {
	testing.TB
	cleanup []func()
	failed  []string
}

func (t *tester) Helper()          {}
func (t *tester) Name() string     { return "Example" }
func (t *tester) Cleanup(f func()) { t.cleanup = append(t.cleanup, f) }
func (t *tester) Skipf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
func (t *tester) Errorf(format string, args ...any) {
	t.failed = append(t.failed, fmt.Sprintf(format, args...))
	fmt.Println(t.failed[len(t.failed)-1])
}

// Fatalf ends what runs by a panic with the message.
func (t *tester) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	panic(fatal(t.failed[len(t.failed)-1]))
}

type fatal string

func (t *tester) end() {
	for _, f := range t.cleanup {
		f()
	}
	t.cleanup = nil
}
