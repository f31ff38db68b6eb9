package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/rpcprof/pipeline"
)

// Replies come in the order in which handlers finish, here the reverse of the
// calls', and each reaches its own caller.
func TestAnyOrder(t *testing.T) {
	checkGoroutines(t)
	const n = 16
	started := make(chan byte, n)
	var release [n]chan struct{}
	for i := range release {
		release[i] = make(chan struct{})
	}
	addr := serve(t, pipeline.ServerConfig{Workers: n}, map[string]pipeline.Handler{
		"test.T/Wait": func(_ context.Context, req []byte) ([]byte, error) {
			i := req[0]
			started <- i
			<-release[i]
			return []byte{i}, nil
		},
	})
	c := dial(t, addr)
	ctx := within(t)
	finished := make(chan byte, n)
	for i := range n {
		go func() {
			got, err := c.Call(ctx, "test.T/Wait", []byte{byte(i)})
			if err != nil || len(got) != 1 || got[0] != byte(i) {
				t.Errorf("call %d: %v, %v", i, got, err)
			}
			finished <- byte(i)
		}()
	}
	for range n {
		receive(t, started)
	}
	for i := n - 1; i >= 0; i-- {
		close(release[i])
		if got := receive(t, finished); got != byte(i) {
			t.Fatalf("call %d finished where %d was released", got, i)
		}
	}
}

func TestManyCalls(t *testing.T) {
	for _, workers := range []int{0, 4} {
		t.Run(fmt.Sprintf("workers=%d", workers), func(t *testing.T) {
			checkGoroutines(t)
			addr := serve(t, pipeline.ServerConfig{Workers: workers, QueueLen: 8}, map[string]pipeline.Handler{
				"test.T/Echo": echo,
				"test.T/Upper": func(_ context.Context, req []byte) ([]byte, error) {
					return bytes.ToUpper(req), nil
				},
			})
			c := dial(t, addr)
			ctx := within(t)
			var wg sync.WaitGroup
			for g := range 50 {
				wg.Go(func() {
					for i := range 200 {
						// Some requests are longer than the read buffer.
						req := []byte(strings.Repeat(fmt.Sprintf("g%d i%d ", g, i), 1+i*i%97))
						if i == 100 {
							req = bytes.Repeat(req, 1+(100<<10)/len(req))
						}
						method, want := "test.T/Echo", req
						if i%2 == 1 {
							method, want = "test.T/Upper", bytes.ToUpper(req)
						}
						got, err := c.Call(ctx, method, req)
						if err != nil || !bytes.Equal(got, want) {
							t.Errorf("%s of %d bytes: %d bytes, %v", method, len(req), len(got), err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

type oddError struct{}

func (oddError) Error() string { panic("no message") }

func TestHandlerErrors(t *testing.T) {
	for _, workers := range []int{0, 1} {
		t.Run(fmt.Sprintf("workers=%d", workers), func(t *testing.T) {
			checkGoroutines(t)
			var nilError *pipeline.RemoteError
			fail := func(err error) pipeline.Handler {
				return func(context.Context, []byte) ([]byte, error) { return nil, err }
			}
			addr := serve(t, pipeline.ServerConfig{Workers: workers, MaxFrame: 4096}, map[string]pipeline.Handler{
				"Echo":  echo,
				"Plain": fail(io.ErrShortWrite),
				"Own":   fail(fmt.Errorf("wrapped: %w", &pipeline.RemoteError{Code: 99, Message: "own"})),
				"Odd":   fail(oddError{}),
				"Nil":   fail(nilError),
				"Long":  fail(errors.New(strings.Repeat("x", 1<<20))),
				"Large": func(context.Context, []byte) ([]byte, error) { return make([]byte, 4096), nil },
				"Panic": func(context.Context, []byte) ([]byte, error) { panic("on purpose") },
			})
			c := dial(t, addr)
			for _, tt := range []struct {
				method string
				code   uint8
				text   string
			}{
				{"Plain", pipeline.CodeHandler, io.ErrShortWrite.Error()},
				{"Own", 99, "own"},
				{"Odd", pipeline.CodeHandler, "error without a message"},
				{"Nil", pipeline.CodeHandler, "error without a message"},
				{"Long", pipeline.CodeHandler, strings.Repeat("x", 1024)},
				{"Large", pipeline.CodeTooLarge, "reply of 4105 bytes where 4096 are allowed"},
				{"Panic", pipeline.CodePanic, "handler panicked: on purpose"},
				{"None", pipeline.CodeUnknownMethod, "unknown method None"},
			} {
				_, err := c.Call(within(t), tt.method, nil)
				var re *pipeline.RemoteError
				if !errors.As(err, &re) || re.Code != tt.code || re.Message != tt.text {
					t.Errorf("%s: %v", tt.method, err)
				}
				if got, err := c.Call(within(t), "Echo", []byte("on")); err != nil || string(got) != "on" {
					t.Fatalf("after %s: %q, %v", tt.method, got, err)
				}
			}
		})
	}
}

// A caller that gives up returns at once, and its late reply disturbs nobody.
func TestCallerGivesUp(t *testing.T) {
	checkGoroutines(t)
	started, release := make(chan bool, 1), make(chan bool)
	addr := serve(t, pipeline.ServerConfig{Workers: 2}, map[string]pipeline.Handler{
		"Echo": echo,
		"Wait": func(context.Context, []byte) ([]byte, error) {
			started <- true
			<-release
			return []byte("late"), nil
		},
	})
	c := dial(t, addr)
	ctx, cancel := context.WithCancel(within(t))
	done := make(chan error, 1)
	go func() {
		_, err := c.Call(ctx, "Wait", nil)
		done <- err
	}()
	receive(t, started)
	cancel()
	if err := receive(t, done); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled call: %v", err)
	}
	close(release)
	for range 100 {
		if got, err := c.Call(within(t), "Echo", []byte("x")); err != nil || string(got) != "x" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if _, err := c.Call(ctx, "Echo", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("call with a context that has ended: %v", err)
	}
	past, cancel := context.WithDeadline(within(t), time.Now().Add(-time.Hour))
	defer cancel()
	if _, err := c.Call(past, "Echo", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("call after its deadline: %v", err)
	}
}

// When the connection is cut, every caller is told once, and the handlers'
// contexts end.
func TestConnectionCut(t *testing.T) {
	for _, cut := range []string{"server", "client"} {
		t.Run(cut, func(t *testing.T) {
			checkGoroutines(t)
			const n = 8
			started, ended := make(chan bool, n), make(chan error, n)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := pipeline.NewServer(pipeline.ServerConfig{Workers: n})
			s.Handle("Wait", func(ctx context.Context, _ []byte) ([]byte, error) {
				started <- true
				<-ctx.Done()
				ended <- ctx.Err()
				return nil, ctx.Err()
			})
			served := make(chan error, 1)
			go func() { served <- s.Serve(l) }()
			defer func() {
				_ = s.Close()
				receive(t, served)
			}()
			c := dial(t, l.Addr().String())
			told := make(chan error, 2*n)
			for range n {
				go func() {
					_, err := c.Call(context.Background(), "Wait", nil)
					told <- err
				}()
			}
			for range n {
				receive(t, started)
			}
			if cut == "server" {
				_ = s.Close()
			} else {
				_ = c.Close()
			}
			for range n {
				err := receive(t, told)
				if !errors.Is(err, pipeline.ErrClosed) {
					t.Errorf("caller was told %v", err)
				}
				if cut == "server" && err == pipeline.ErrClosed {
					t.Error("caller was not told the cause")
				}
				if err := receive(t, ended); !errors.Is(err, context.Canceled) {
					t.Errorf("handler's context: %v", err)
				}
			}
			if _, err := c.Call(context.Background(), "Wait", nil); !errors.Is(err, pipeline.ErrClosed) {
				t.Errorf("later call: %v", err)
			}
		})
	}
}

// A client that does not read its replies holds neither the server's Close nor
// the callers of its own.
func TestPeerDoesNotRead(t *testing.T) {
	checkGoroutines(t)
	addr := serve(t, pipeline.ServerConfig{Workers: 2, QueueLen: 4}, map[string]pipeline.Handler{
		"Big": func(context.Context, []byte) ([]byte, error) { return make([]byte, 1<<19), nil },
	})
	nc := dialRaw(t, addr)
	for i := range 200 {
		if _, err := nc.Write(rawRequest(uint64(i), "Big", 0, nil)); err != nil {
			t.Fatal(err)
		}
	}

	near, far := net.Pipe() // nobody reads far
	defer far.Close()
	c := pipeline.NewClient(near)
	ctx, cancel := context.WithCancel(within(t))
	const n = 16
	told := make(chan error, n)
	for range n {
		go func() {
			_, err := c.Call(ctx, "Big", make([]byte, 1<<19))
			told <- err
		}()
	}
	cancel()
	for range n {
		if err := receive(t, told); !errors.Is(err, context.Canceled) {
			t.Errorf("caller was told %v", err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
