package rpcprof

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketCookie asks the kernel for the number by which its events name the
// socket, 0 where there is none (SO_COOKIE, Linux 4.12).
func socketCookie(nc net.Conn) uint64 {
	for range 4 { // below TLS and the like
		if in, ok := nc.(interface{ NetConn() net.Conn }); ok {
			nc = in.NetConn()
		}
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0
	}
	var cookie uint64
	if err := raw.Control(func(fd uintptr) {
		cookie, _ = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_COOKIE)
	}); err != nil {
		return 0
	}
	return cookie
}
