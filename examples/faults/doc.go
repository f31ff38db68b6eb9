// Package faults is a service with a known fault of a known amount, and the load
// on it. It embeds package rpcprof as any service does and knows nothing of what
// may be attached to it.
//
// The service has the methods demo.Store/Get, about 150 µs of CPU work, and
// demo.Store/Report, which sleeps for ReportTime. In all faults the load decides
// which calls are hit, about one in ten, or all of them with Every; a byte of the
// request says so. Names gives the faults:
//
//	none    nothing is wrong
//	lock    hit calls come in bunches and hold one mutex, each for LockHold
//	pool    two workers, which the hit calls, Reports, occupy: Gets queue
//	inline  no workers: Reports run on the reader, and Gets behind them wait
//	hog     another process takes the CPU for HogBurst of each HogPeriod
//	sleep   hit calls sleep for SleepTime in the handler
//	disk    hit calls write and fsync for DiskTime
//
// For hog, whoever starts the server also starts HogProcesses processes that call
// Hog with the same CPU.
package faults
