//go:build !(linux && amd64)

package rpcprof

// Now is the time of a stamp: the runtime's monotonic clock in nanoseconds.
func Now() int64  { return nanotime() }
func startClock() {}

// tscNow is for a clock that is cheaper than the runtime's; here there is none.
func tscNow() int64  { return nanotime() }
func slowNow() int64 { return nanotime() }
