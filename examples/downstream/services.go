package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/pipeline"
)

// newFrontend makes the service that is called. Its client has the same Profiler as
// the server, which is how a call that it makes knows the one it was made in.
func newFrontend(prof *rpcprof.Profiler, back *pipeline.Client) *pipeline.Server {
	srv := pipeline.NewServer(pipeline.ServerConfig{Profiler: prof, Workers: 8})
	srv.Handle("front.Page/Get", page{back}.get)
	return srv
}

type page struct{ back *pipeline.Client }

// get asks for the price and, on a goroutine of its own, for the stock.
func (p page) get(ctx context.Context, req []byte) ([]byte, error) {
	defer rpcprof.Region(ctx, "fan-out").End()

	var left []byte
	var leftErr error
	done := make(chan struct{})
	rpcprof.Go(ctx, func() {
		defer close(done)
		left, leftErr = p.back.Call(ctx, "back.Stock/Get", req)
	})
	cost, err := p.back.Call(ctx, "back.Price/Get", req)
	<-done
	return bytes.Join([][]byte{cost, left}, []byte(" ")), errors.Join(err, leftErr)
}

const (
	slowEvery = 10                    // one in so many calls of the stock,
	slowFor   = 10 * time.Millisecond // by chance, sleeps for so long
)

// newBackend makes the service that is called by the first. It has one worker.
func newBackend(prof *rpcprof.Profiler) *pipeline.Server {
	srv := pipeline.NewServer(pipeline.ServerConfig{Profiler: prof, Workers: 1})
	srv.Handle("back.Stock/Get", stock)
	srv.Handle("back.Price/Get", price)
	return srv
}

func stock(_ context.Context, req []byte) ([]byte, error) {
	if rand.IntN(slowEvery) == 0 {
		time.Sleep(slowFor)
	}
	return append([]byte("stock of "), req...), nil
}

func price(_ context.Context, req []byte) ([]byte, error) {
	return append([]byte("price of "), req...), nil
}
