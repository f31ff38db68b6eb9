//go:build amd64 && !race

package rpcprof

// store64 and store32 publish a word to other goroutines and processes: what was
// written before is seen by whoever sees it. The processor keeps stores in order,
// so that a plain one does; package atomic would also wait until it is visible,
// which costs a call some 6 ns each time and is of no use here.
func store64(p *uint64, v uint64) { *p = v }
func store32(p *uint32, v uint32) { *p = v }

// mark64 is store64 of a word that says that what follows it is being written: no
// later store is seen before it either.
func mark64(p *uint64, v uint64) { *p = v }
