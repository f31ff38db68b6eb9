package probes

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rpcprof/toolkit/probes/symbols"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// Check is one finding of Doctor.
type Check struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Found string `json:"found"`
	Do    string `json:"do,omitempty"` // the one thing to do where it is not OK
}

// Doctor tries what attaching needs, here and now, and for one process if pid is
// not 0.
func Doctor(pid int) []Check {
	checks := []Check{checkKernel(), checkPrograms(), checkKernelSymbols(), checkMemory(), checkClock()}
	if pid != 0 {
		checks = append(checks, checkTarget(pid)...)
	}
	return checks
}

func checkKernel() Check {
	c := Check{Name: "kernel", OK: true}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Check{Name: "kernel", Found: err.Error()}
	}
	c.Found = "Linux " + unix.ByteSliceToString(u.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err == nil && (major < 5 || major == 5 && minor < 14) {
		c.OK, c.Do = false, "Linux 5.14 or newer has all that the probes need"
	}
	return c
}

// checkPrograms attaches to this very process and lets go again.
func checkPrograms() Check {
	c := Check{Name: "BPF programs"}
	k, err := attachKernel(os.Getpid(), nil)
	var ke *KernelError
	switch {
	case err == nil:
		c.OK, c.Found = true, fmt.Sprintf("%d programs load and attach", len(k.links))
		if len(k.missed) > 0 {
			c.Found += ", without " + strings.Join(k.missed, ", ")
		}
		k.Close()
	case errors.Is(err, ErrPrivilege):
		c.Found, c.Do = "not permitted", "run as root, or: setcap cap_bpf,cap_perfmon+ep on the rpcprof binary"
	case errors.As(err, &ke):
		c.Found, c.Do = ke.Error(), "calls, queues, threads and goroutine waits work without"
	default:
		c.Found, c.Do = err.Error(), "calls, queues, threads and goroutine waits work without"
	}
	return c
}

func checkKernelSymbols() Check {
	if _, err := symbols.OpenKernel(); err != nil {
		return Check{Name: "kernel symbols", Found: err.Error(), Do: "run as root, or set sysctl kernel.kptr_restrict to 0"}
	}
	return Check{Name: "kernel symbols", OK: true, Found: "readable"}
}

// checkMemory says whether another process's goroutines could be read.
func checkMemory() Check {
	c := Check{Name: "reading goroutines", OK: true, Found: "permitted for processes of the same user"}
	if os.Geteuid() == 0 {
		c.Found = "permitted"
		return c
	}
	b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if err == nil && !bytes.HasPrefix(b, []byte("0")) {
		c.OK = false
		c.Found = "Yama's ptrace_scope is " + strings.TrimSpace(string(b))
		c.Do = "run as root, or: setcap cap_sys_ptrace+ep on the rpcprof binary"
	}
	return c
}

func checkClock() Check {
	b, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	src := strings.TrimSpace(string(b))
	if err != nil || src != "tsc" {
		return Check{Name: "clock", Found: "clock source " + src, Do: "nothing: a stamp takes 33 ns here instead of 12"}
	}
	return Check{Name: "clock", OK: true, Found: "tsc"}
}

func checkTarget(pid int) []Check {
	name := fmt.Sprintf("process %d", pid)
	files, err := segment.Find(pid)
	for _, f := range files {
		defer f.Close()
	}
	switch {
	case errors.Is(err, segment.ErrNoProcess):
		return []Check{{Name: name, Found: "there is none", Do: "check the id"}}
	case errors.Is(err, segment.ErrRefused):
		return []Check{{Name: name, Found: "not yours to look into", Do: "run as its user or as root"}}
	case err != nil && len(files) == 0:
		return []Check{{Name: name, Found: err.Error(), Do: "use the library and the command of one version"}}
	case len(files) == 0:
		return []Check{{Name: name, Found: "does not embed rpcprof: no calls, only threads and interrupts", Do: "import github.com/rpcprof/toolkit/rpcprof and wrap its transport"}}
	}
	var out []Check
	for _, f := range files {
		h := f.Header()
		name := name
		if n := printable(h.ServiceString()); len(files) > 1 && n != "" {
			name += ", " + n
		}
		if h.Flags&segment.FlagThreads != 0 {
			out = append(out, Check{Name: name, OK: true, Found: fmt.Sprintf("%s publishes its calls, which run on threads; kernel events can be joined to them", readComm(pid))})
			continue
		}
		out = append(out, Check{Name: name, OK: true, Found: fmt.Sprintf("%s, built with %s, publishes its calls", readComm(pid), printable(h.GoVersionString()))})
		g := Check{Name: "its goroutines", OK: h.Flags&segment.FlagGoroutines != 0, Found: "kernel events can be joined to calls"}
		if !g.OK {
			g.Found, g.Do = printable(h.DegradedString()), "calls and queues work without"
		}
		out = append(out, g)
	}
	return out
}
