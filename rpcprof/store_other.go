//go:build !amd64 || race

package rpcprof

import "sync/atomic"

// store64 and store32 publish a word to other goroutines and processes: what was
// written before is seen by whoever sees it.
func store64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
func store32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// mark64 is store64 of a word that says that what follows it is being written: no
// later store is seen before it either. A store alone would not keep it so where the
// processor reorders stores.
func mark64(p *uint64, v uint64) { atomic.SwapUint64(p, v) }
