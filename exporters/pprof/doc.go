// Package pprof writes a profile for go tool pprof: what calls lost time to, by
// stack, method, stage and cause.
//
// What may not come in: evidence or judging. One sample is one cell of the
// profile; nothing is added and nothing left out.
package pprof
