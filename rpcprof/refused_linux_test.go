//go:build amd64 || arm64

package rpcprof

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// refuse makes the kernel answer system calls with EPERM from now on, in all
// threads, as a container's seccomp profile does.
func refuse(calls ...uint32) error {
	const (
		load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS // of struct seccomp_data, whose first word is the number
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K
	)
	prog := []unix.SockFilter{{Code: load}}
	for _, nr := range calls {
		prog = append(prog, unix.SockFilter{Code: equal, K: nr, Jf: 1},
			unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)})
	}
	prog = append(prog, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW})
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog))); e != 0 {
		return e
	}
	return nil
}

// Where the kernel refuses a memfd, or to look at one's own memory, a Profiler
// records all the same and says what is missing.
func TestRefused(t *testing.T) {
	for name, calls := range map[string][]uint32{
		"memfd_create":     {unix.SYS_MEMFD_CREATE},
		"process_vm_readv": {unix.SYS_PROCESS_VM_READV},
		"both":             {unix.SYS_MEMFD_CREATE, unix.SYS_PROCESS_VM_READV},
	} {
		t.Run(name, func(t *testing.T) {
			if os.Getenv("RPCPROF_TEST_REFUSED") != name {
				c := exec.Command(os.Args[0], "-test.run", "^TestRefused$/^"+name+"$", "-test.v")
				c.Env = append(os.Environ(), "RPCPROF_TEST_REFUSED="+name)
				out, err := c.CombinedOutput()
				if errors.Is(err, unix.ENOEXEC) {
					t.Skip("an emulator runs this test and cannot be started again")
				}
				if err != nil || !strings.Contains(string(out), "--- PASS: TestRefused/"+name) {
					if strings.Contains(string(out), "--- SKIP: TestRefused/"+name) {
						t.Skip("no seccomp here")
					}
					t.Errorf("%v\n%s", err, out)
				}
				return
			}
			runtime.LockOSThread() // the first filter is this thread's, the others follow
			if err := refuse(calls...); err != nil {
				t.Skip(err)
			}
			p := New(Config{})
			noFile, noGoroutines := name != "process_vm_readv", name != "memfd_create"
			if err := p.Err(); err == nil || errors.Is(err, segment.ErrHeap) != noFile || (p.off == nil) != noGoroutines {
				t.Errorf("degraded: %v; goroutines known: %v", err, p.off != nil)
			}
			r := readerOf(t, p)
			m := p.Method("m")
			for range 100 {
				full(p, m, p.Conn(nil), nil, [6]int64{1, 2, 3, 4, 5, 6})
			}
			records(t, r, 100)
			if s := p.Snapshot(); s.Lost != 0 || s.Methods[0].Total.Count != 100 {
				t.Errorf("snapshot %+v", s)
			}
			h := r.Header()
			if d := h.DegradedString(); d == "" {
				t.Error("the segment does not say what is missing")
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
