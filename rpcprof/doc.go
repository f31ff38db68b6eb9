// Package rpcprof is what a service embeds. It wraps the service's RPC transport
// and stamps every call: recv, dequeue, handler, handled, write, sent; and it
// publishes what each call and each goroutine is doing in a shared-memory
// segment that "rpcprof attach PID" reads from outside.
//
// A transport takes these steps for a call:
//
//	prof := rpcprof.New(rpcprof.Config{Service: "orders"})
//	conn := prof.Conn(netConn)              // once a connection
//	reader := conn.Reader()                 // on the goroutine that reads it
//	worker := prof.Queue().Worker()         // on each goroutine that serves calls; or nil
//
//	call := prof.Begin(method, conn, rpcprof.Now()) // the request's frame is complete
//	call.Start(worker, rpcprof.Now())          // a worker has taken it
//	call.Stamp(rpcprof.Handler)                // user code starts
//	call.Stamp(rpcprof.Handled)                // user code has returned
//	call.Release(rpcprof.Now())                // the worker is free again
//	call.Stamp(rpcprof.Write)                  // the reply enters the write
//	call.Stamp(rpcprof.Sent)                   // that write has returned
//	call.End(rpcprof.OK)
//
// Package pipeline does all this; adapters do it for other frameworks.
//
// Recording never allocates for a call, never blocks and never panics into its
// host. All methods accept a nil receiver and then do nothing. A Profiler, its
// methods, queues and connections may be used from several goroutines at once; a
// Call belongs to one goroutine at a time, which hands it on.
//
// Times are nanoseconds of CLOCK_MONOTONIC, as Now gives them.
package rpcprof
