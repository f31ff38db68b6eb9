package prometheus_test

import (
	"fmt"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/rpcprof/toolkit/exporters/prometheus"
	"github.com/rpcprof/toolkit/rpcprof"
)

// A service registers the collector beside its own; promhttp serves both.
func ExampleNewCollector() {
	p := rpcprof.New(rpcprof.Config{Service: "orders"})
	defer func() { _ = p.Close() }()
	reg := prom.NewRegistry()
	reg.MustRegister(prometheus.NewCollector(p))

	// One call, which a transport would stamp as it happens.
	at := rpcprof.Now()
	end := at + int64(20*time.Millisecond)
	call := p.Begin(p.Method("orders.Orders/Get"), nil, at)
	call.Start(nil, at)
	call.StampAt(rpcprof.Handler, at)
	call.StampAt(rpcprof.Handled, end)
	call.StampAt(rpcprof.Write, end)
	call.StampAt(rpcprof.Sent, end)
	call.End(rpcprof.OK)

	families, err := reg.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		if f.GetName() == prometheus.CallDuration {
			m := f.GetMetric()[0]
			fmt.Println(m.GetLabel()[0].GetValue(), m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum())
		}
	}
	// Output: orders.Orders/Get 1 0.02
}
