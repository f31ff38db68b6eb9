//go:build !amd64 || race

package rpcprof

import "sync/atomic"

// store64 and store32 publish a word to other goroutines and processes: what was
// written before is seen by whoever sees it.
func store64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
func store32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
