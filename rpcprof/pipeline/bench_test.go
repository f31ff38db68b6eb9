package pipeline_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/rpcprof/toolkit/rpcprof"
	"github.com/rpcprof/toolkit/rpcprof/pipeline"
)

// A call over the loopback, 32 in flight on one connection; both sides are in
// this process. The call's one allocation is the reply that its caller keeps.
func BenchmarkEcho(b *testing.B) {
	for _, workers := range []int{0, 4} {
		for _, recorded := range []bool{false, true} {
			b.Run(fmt.Sprintf("workers=%d/recorded=%v", workers, recorded), func(b *testing.B) {
				var prof *rpcprof.Profiler
				if recorded {
					prof = rpcprof.New(rpcprof.Config{Service: "bench"})
					defer prof.Close()
				}
				addr := serve(b, pipeline.ServerConfig{Profiler: prof, Workers: workers}, map[string]pipeline.Handler{"bench.Bench/Echo": echo})
				c := dial(b, addr)
				payload := make([]byte, 64)
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				for g := range 32 {
					wg.Go(func() {
						for i := g; i < b.N; i += 32 {
							if _, err := c.Call(context.Background(), "bench.Bench/Echo", payload); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}
