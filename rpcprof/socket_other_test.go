//go:build !linux

package rpcprof

import (
	"net"
	"testing"
)

// cookieByKernel: only Linux has cookies.
func cookieByKernel(*testing.T, net.Conn) uint64 { return 0 }
