//go:build !race

package rpcprof

const raceEnabled = false
