package prometheus

import prom "github.com/prometheus/client_golang/prometheus"

// Names of the metrics, and where each comes from.
const (
	// CallDuration is rpc.server.call.duration of the OpenTelemetry semantic
	// conventions (https://opentelemetry.io/docs/specs/semconv/rpc/rpc-metrics/),
	// which replaced rpc.server.duration after v1.37.0, as Prometheus spells it:
	// dots become underscores, the unit is a suffix. Its label is the attribute
	// rpc.method. The attribute rpc.system.name is left out: a Profiler does not
	// know its transport's.
	CallDuration = "rpc_server_call_duration_seconds"
	// ClientCallDuration is rpc.client.call.duration likewise.
	ClientCallDuration = "rpc_client_call_duration_seconds"
	// StageDuration is the project's own: no convention has stages. Its stages
	// are segment.StageName's but recv, which only the kernel's evidence knows.
	StageDuration = "rpcprof_stage_duration_seconds"
	// ClientStageDuration is the client side's.
	ClientStageDuration = "rpcprof_client_stage_duration_seconds"
	// LostCalls is the project's own.
	LostCalls = "rpcprof_lost_calls_total"
)

var (
	callDesc        = prom.NewDesc(CallDuration, "Time from the complete request to the written reply.", []string{"rpc_method"}, nil)
	clientDesc      = prom.NewDesc(ClientCallDuration, "Time from the caller's request to its reply.", []string{"rpc_method"}, nil)
	stageDesc       = prom.NewDesc(StageDuration, "Time calls spent in one stage, at the server.", []string{"method", "stage"}, nil)
	clientStageDesc = prom.NewDesc(ClientStageDuration, "Time calls spent in one stage, at the client; server is a part of wire+server.", []string{"method", "stage"}, nil)
	lostDesc        = prom.NewDesc(LostCalls, "Calls that could not be recorded.", nil, nil)
)
