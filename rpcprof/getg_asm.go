//go:build amd64 || arm64

package rpcprof

import "unsafe"

// getg gives the address of the running goroutine's g. It identifies the
// goroutine; nothing is read through it until the offsets have been verified.
func getg() unsafe.Pointer
