package profile

import (
	"fmt"
	"path"
	"strings"
)

// standard are first elements of package paths that are not the owner's code.
var standard = map[string]bool{
	"runtime": true, "sync": true, "internal": true, "syscall": true, "os": true, "io": true, "net": true,
	"time": true, "bufio": true, "context": true, "bytes": true, "strings": true, "fmt": true, "log": true,
	"reflect": true, "sort": true, "errors": true, "math": true, "hash": true, "crypto": true, "encoding": true,
	"database": true, "compress": true, "container": true, "slices": true, "maps": true, "vendor": true, "iter": true,
}

// Location names the line of a stack that is the owner's: the innermost frame
// outside the standard library and the kernel, as "file.go:88". Where no frame has a
// line, as in C++, it is the innermost function of the executable itself; where there
// is none, it is empty.
func Location(s Stack) string {
	for _, f := range s {
		if f.Kernel || f.File == "" || f.Line == 0 {
			continue
		}
		first := f.Func
		if i := strings.IndexAny(first, "/."); i >= 0 {
			first = first[:i]
		}
		if standard[first] || strings.HasPrefix(f.Func, "golang.org/x/sys/") {
			continue
		}
		return fmt.Sprintf("%s:%d", path.Base(f.File), f.Line)
	}
	for _, f := range s {
		if !f.Kernel && f.File == "" && f.Module == "" && !foreign(f.Func) {
			return f.Func
		}
	}
	return ""
}

// foreign says that a function without a line is not the owner's: what a static
// executable has of the C and C++ libraries, or what has no name.
func foreign(name string) bool {
	for _, p := range []string{"[", "_", "std::", "pthread_", "runtime."} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	switch name {
	case "", "syscall", "nanosleep", "clock_nanosleep", "usleep", "sleep", "read", "write", "poll", "epoll_wait", "clone", "clone3":
		return true
	}
	return false
}
