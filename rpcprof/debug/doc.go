// Package debug shows a service, on a page of its own, where its calls lose time:
// from the stamps that its Profiler has taken, without any privilege, without
// attaching, and without leaving the process.
//
//	http.Handle("/debug/rpcprof/", http.StripPrefix("/debug/rpcprof", debug.Handler(prof, debug.Options{})))
//
// Nothing is mounted but by the owner, and nobody but those who may see that mux can
// see the page. It names methods, regions and functions of the service; it has no
// payloads, no arguments and no peers' addresses.
//
//	/                    the page: the last 30 s of what the Profiler still holds
//	/json                the same as "rpcprof attach PID --json" writes it
//	/profile?seconds=5   a profile for "go tool pprof", of calls that finish from now on
//
// The page and the JSON take seconds=N too, up to 60. Stages, queues, what calls wait
// behind, outcomes and the runtime's metrics are known here. Why a handler took long
// is not, unless its owner marked regions: "rpcprof attach PID" knows.
package debug
