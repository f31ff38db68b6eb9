// Package rpcproftest lets a service's own tests look at the calls that the service
// records: that a method is recorded at all, that all stamps of a transport are taken,
// that a failure has the outcome it should, that a call made in a handler belongs to it.
//
//	rec := rpcproftest.New(t)
//	srv := orders.NewServer(rec.Profiler())
//	...
//	call := rec.Served("orders.Orders/Get")
//	rpcproftest.Complete(t, call)
//
// A reply may reach its caller before the server's call has finished, so whatever looks
// for a call waits for it, within a bound, and fails the test with what there was
// instead. Nothing here asserts that anything was fast: such a test fails on a busy
// machine. AtLeast is safe, since a handler that slept for 10 ms did take 10 ms.
//
// It needs no privilege and works wherever package rpcprof does. What lives here: what
// a test of a service needs. What may not come in: any dependency but package rpcprof.
package rpcproftest
