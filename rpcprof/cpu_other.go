//go:build !linux || !(amd64 || arm64)

package rpcprof

const cpuEveryBits = 8

func cpuEvery() uint32    { return 0 }
func (c *Call) startCPU() {}
func (c *Call) endCPU()   {}
