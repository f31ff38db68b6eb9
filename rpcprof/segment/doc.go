// Package segment is the shared memory in which a service publishes its calls,
// and the only place that knows its layout, which FORMAT.md describes byte by byte.
//
// A Writer makes a sealed memfd named "rpcprof" and fills it: the methods and
// connections, what every call is doing now (slots), which goroutine does it
// (index), the calls that have finished (rings, one a shard) and histograms.
// A Reader reads it from another process with pread and trusts nothing in it.
//
// Times are nanoseconds of the clock the header names. What lives here: the
// layout, the writer, the reader, and how a segment is found. What may not come
// in: policy about calls, and any import but the standard library and x/sys.
package segment
