package symbols

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rpcprof/toolkit/rpcprof/profile"
)

// program prints, for several call paths, each return address with the frames
// its own runtime finds for it, the exact address of a function, and the
// address of an absolute nothing; then it waits to be looked at.
const program = `package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime"
	"sort"
	"strings"
)

CGO

type frame struct {
	Func, File string
	Line       int
}

type call struct {
	PC     uint64
	Exact  bool
	Frames []frame
}

var calls []call

//go:noinline
func record() {
	pcs := make([]uintptr, 64)
	pcs = pcs[:runtime.Callers(2, pcs)]
	// Callers gives one address for each inlined frame; what is on the stack
	// is the first of each physical function.
	var entry uintptr
	fs := runtime.CallersFrames(pcs)
	for {
		f, more := fs.Next()
		if f.Function == "" {
			break
		}
		if f.Entry != entry {
			calls = append(calls, call{PC: uint64(f.PC + 1)})
			entry = f.Entry
		}
		c := &calls[len(calls)-1]
		c.Frames = append(c.Frames, frame{f.Function, f.File, f.Line})
		if !more {
			break
		}
	}
}

func inner(n int) int {
	record()
	return n + 1
}

func middle(n int) int { return inner(n) * 2 }

//go:noinline
func outer(n int) int { return middle(n) + middle(n+1) }

//go:noinline
func generic[T any](v T) { record(); runtime.KeepAlive(v) }

type T struct{ n int }

func (t T) value()     { record() }
func (t *T) pointer()  { func() { record() }() }

type doer interface{ value() }

func main() {
	outer(1)
	generic(3)
	generic("x")
	var d doer = &T{1}
	d.value()
	(&T{2}).pointer()
	sort.Slice([]int{3, 1, 2}, func(i, j int) bool { record(); return false })
	strings.Map(func(r rune) rune { record(); return r }, "a")
	done := make(chan bool)
	go func() { defer close(done); record() }()
	<-done
	pc := reflect.ValueOf(outer).Pointer()
	f := runtime.FuncForPC(pc)
	file, line := f.FileLine(pc)
	calls = append(calls, call{uint64(pc), true, []frame{{f.Name(), file, line}}})
	json.NewEncoder(os.Stdout).Encode(map[string]any{"version": runtime.Version(), "calls": calls, "c": caddr()})
	fmt.Println()
	io.Copy(io.Discard, os.Stdin)
}
`

const cgoPart = `
// static int half(int x) { return x / 2; }
// int cfunction(int x) { return half(x) + 7; }
// void *cpointer(void) { return (void*)cfunction; }
import "C"

func caddr() uint64 { return uint64(uintptr(C.cpointer())) }
`

type output struct {
	Version string
	Calls   []struct {
		PC     uint64
		Exact  bool
		Frames []profile.Frame
	}
	C uint64
}

// start builds the program and runs it until the test ends.
func start(t testing.TB, cgo bool, env []string, flags ...string) (pid int, exe string, out output) {
	t.Helper()
	dir := t.TempDir()
	src := strings.Replace(program, "CGO", "func caddr() uint64 { return 0 }", 1)
	if cgo {
		if _, err := exec.LookPath("gcc"); err != nil {
			t.Skip("no C compiler")
		}
		src = strings.Replace(program, "CGO", cgoPart, 1)
	}
	for name, text := range map[string]string{"main.go": src, "go.mod": "module example.org/program\n\ngo 1.25.0\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	exe = filepath.Join(dir, "program")
	build := exec.Command("go", append(append([]string{"build", "-o", exe}, flags...), ".")...)
	build.Dir = dir
	build.Env = append(append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0"), env...)
	if cgo {
		build.Env = append(build.Env, "CGO_ENABLED=1")
	}
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, text)
	}
	run := exec.Command(exe)
	stdin, err := run.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); _ = run.Wait() })
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(line, &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Calls) < 15 {
		t.Fatalf("the program recorded %d calls only", len(out.Calls))
	}
	return run.Process.Pid, exe, out
}

// flavours are ways to build Go programs. Those stripped have neither a symbol
// table nor DWARF.
var flavours = []struct {
	name  string
	cgo   bool
	flags []string
}{
	{"default", false, nil},
	{"stripped", false, []string{"-ldflags=-s -w"}},
	{"pie", false, []string{"-buildmode=pie"}},
	{"pie-stripped", false, []string{"-buildmode=pie", "-ldflags=-s -w"}},
	{"trimpath", false, []string{"-trimpath"}},
	{"noinline", false, []string{"-gcflags=all=-l"}},
	{"cgo", true, nil},
	{"cgo-stripped", true, []string{"-ldflags=-s -w"}},
	{"cgo-pie", true, []string{"-buildmode=pie"}},
	{"cgo-pie-stripped", true, []string{"-buildmode=pie", "-ldflags=-s -w"}},
	{"cgo-static", true, []string{"-ldflags=-linkmode=external -extldflags=-static"}},
}
