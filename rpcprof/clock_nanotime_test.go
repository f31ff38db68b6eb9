//go:build !(linux && amd64)

package rpcprof

// stopClock has nothing to stop: the runtime's clock is the only one.
func stopClock() {}
