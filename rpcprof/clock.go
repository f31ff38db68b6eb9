package rpcprof

import _ "unsafe" // for linkname

// nanotime, procPin and procUnpin are kept linkable by the runtime.

//go:linkname nanotime runtime.nanotime
func nanotime() int64

// procPin keeps the goroutine on its P and gives the P's number.
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()
