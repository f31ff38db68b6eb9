// Package rpcprof is what a service embeds. It stamps every call that the service
// serves or makes, at instants that its RPC transport knows, and publishes what each
// call and each goroutine is doing in a shared-memory segment that "rpcprof attach
// PID" reads from outside. Recording is meant to be always on.
//
// Package pipeline is a transport that does all this; adapters do it for others. For
// a transport of your own, these are the steps of a call that is served:
//
//	prof := rpcprof.New(rpcprof.Config{Service: "orders"})
//	get := prof.Method("orders.Orders/Get")  // once
//	conn := prof.Conn(netConn)               // once a connection
//	reader := conn.Reader()                  // on the goroutine that reads it
//	worker := prof.Queue().Worker()          // on each goroutine that takes calls from a queue
//
//	call := prof.Begin(get, conn, 0)         // the request's frame is complete
//	call.Start(worker, 0)                    // a worker has taken it
//	call.Stamp(rpcprof.Handler)              // user code starts, with call.Context(ctx)
//	call.Stamp(rpcprof.Handled)              // user code has returned
//	call.Release(0)                          // the worker is free again
//	call.Stamp(rpcprof.Write)                // the reply enters the write, with call.Timing()
//	call.Stamp(rpcprof.Sent)                 // that write has returned
//	call.End(rpcprof.OK)
//
// and of one that is made:
//
//	call := prof.BeginClient(ctx, prof.Client("stock.Stock/Take"), 0)
//	call.Stamp(rpcprof.Acquired)             // a connection was had: call.Via(conn)
//	call.Stamp(rpcprof.Encoded)              // the request waits for the writer
//	call.Stamp(rpcprof.Write)                // it enters the write
//	call.Stamp(rpcprof.Sent)                 // that write has returned
//	call.Stamp(rpcprof.Received)             // the reply is complete: call.ServerTiming
//	call.Stamp(rpcprof.Woken)                // the caller runs again
//	call.End(rpcprof.OK)                     // it has the reply
//
// A time of 0 is now. Where two instants are one, as for the requests cut from one
// read or the replies of one flush, read the clock once, with prof.Now, and share it.
//
// A handler's parts get names with [Region], and goroutines that it starts belong to
// its call with [Go].
//
// # What it promises
//
// Recording does not allocate for a call, block, or panic into its host. The one
// exception is Context, which allocates a context. All methods accept a nil receiver
// and then do nothing; so does everything with RPCPROF=off in the environment.
// Memory is bounded; what is beyond a bound is counted, as lost or under "_other".
//
// A Profiler, its methods, queues and connections may be used from several
// goroutines at once. A Call belongs to one goroutine at a time, which may hand it
// on, and to nobody after End: its memory is the next call's then. A Role belongs to
// the goroutine that made it.
//
// Times are nanoseconds of CLOCK_MONOTONIC, as Now gives them.
package rpcprof
