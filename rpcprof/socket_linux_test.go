package rpcprof

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// cookieByKernel asks the kernel itself; 0 where it has no cookies, as under
// qemu-user.
func cookieByKernel(t *testing.T, nc net.Conn) (cookie uint64) {
	t.Helper()
	f, err := nc.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if cookie, err = unix.GetsockoptUint64(int(f.Fd()), unix.SOL_SOCKET, unix.SO_COOKIE); err != nil {
		t.Log("no cookies here: ", err)
	}
	return cookie
}
