package probes

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rpcprof/toolkit/rpcprof"
)

// The tests look at processes they start: this test binary again, as a service
// that embeds the library and whose calls have one known cause.

const (
	targetEnv = "RPCPROF_TEST_TARGET"
	// ownNamespace makes start give the target other ids for itself than it has here.
	ownNamespace = "RPCPROF_TEST_NAMESPACE=1"
	pause        = 5 * time.Millisecond // what a call loses where it loses a fixed time
)

var targets = map[string]func(){
	"nanosleep": func() { serve(2, func() { kernelSleep(pause) }) },
	"gosleep":   func() { serve(2, func() { time.Sleep(pause) }) },
	"golock":    func() { var mu sync.Mutex; serve(4, func() { convoy(&mu) }) },
	"spin":      func() { pin(0); serve(1, func() { spin(20 * time.Millisecond) }) },
	"spinner":   spinner,
	"fsync":     fsyncTarget,
	"lateread":  lateReadTarget,
	"attacher":  attacher,
	"twins":     twinsTarget,
	"threads":   threadsTarget,
	"usage":     usageTarget,
	"idle":      func() { fmt.Println("ready"); time.Sleep(time.Minute) },
}

func TestMain(m *testing.M) {
	if t := targets[os.Getenv(targetEnv)]; t != nil {
		t()
		return
	}
	os.Exit(m.Run())
}

// attacher looks at another process until it is killed.
func attacher() {
	var pid int
	_, _ = fmt.Sscan(os.Getenv("RPCPROF_TEST_PID"), &pid)
	c, err := Attach(pid, Options{})
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	fmt.Println("ready")
	c.Run(context.Background())
}

// spinner burns CPU 0 under its own name.
func spinner() {
	runtime.LockOSThread()
	pin(0)
	if err := os.WriteFile("/proc/thread-self/comm", []byte("spinner"), 0); err != nil {
		fmt.Println("failed:", err)
		return
	}
	fmt.Println("ready")
	spin(time.Hour)
}

// serve makes calls without a network: each of n workers runs one after the other.
func serve(n int, handler func()) { serveAs("target", n, handler) }

func serveAs(service string, n int, handler func()) {
	prof := rpcprof.New(rpcprof.Config{Service: service})
	method, conn := prof.Method("target.Target/Call"), prof.Conn(nil)
	q := prof.Queue()
	fmt.Println("ready")
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			w := q.Worker()
			defer w.Close()
			for {
				now := rpcprof.Now()
				c := prof.Begin(method, conn, now)
				c.Start(w, now)
				c.StampAt(rpcprof.Handler, now)
				handler()
				c.Stamp(rpcprof.Handled)
				done := rpcprof.Now()
				c.StampAt(rpcprof.Write, done)
				c.StampAt(rpcprof.Sent, done)
				c.Release(done)
				c.End(rpcprof.OK)
			}
		})
	}
	wg.Wait()
}

func kernelSleep(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&ts, nil)
}

//go:noinline
func convoy(mu *sync.Mutex) {
	mu.Lock() // the line that calls wait on
	time.Sleep(2 * time.Millisecond)
	mu.Unlock()
}

// spin burns CPU time of its thread, however long that takes.
func spin(d time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for end := threadCPU() + d; threadCPU() < end; {
		for i := 0; i < 1000; i++ {
			_ = i
		}
	}
}

func pin(cpu int) {
	var set unix.CPUSet
	set.Set(cpu)
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, e := range tasks {
		var tid int
		if _, err := fmt.Sscan(e.Name(), &tid); err == nil {
			_ = unix.SchedSetaffinity(tid, &set)
		}
	}
}

func fsyncTarget() {
	f, err := os.CreateTemp(os.Getenv("RPCPROF_TEST_DIR"), "fsync")
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	block := make([]byte, 4096)
	serve(1, func() {
		for range 10 {
			_, _ = f.WriteAt(block, 0)
			_ = f.Sync()
		}
	})
}

// lateReadTarget serves one connection and lets each request lie for a while
// before it reads it.
func lateReadTarget() {
	prof := rpcprof.New(rpcprof.Config{Service: "target"})
	method := prof.Method("target.Target/Call")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println("failed:", err)
		return
	}
	go func() {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return
		}
		b := make([]byte, 64)
		for {
			if _, err := c.Write(b); err != nil {
				return
			}
			if _, err := io.ReadFull(c, b); err != nil {
				return
			}
		}
	}()
	c, err := l.Accept()
	if err != nil {
		return
	}
	conn := prof.Conn(c)
	role := conn.Reader()
	fmt.Println("ready")
	b := make([]byte, 64)
	for offset := int64(0); ; offset += 64 {
		time.Sleep(pause)
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		now := rpcprof.Now()
		call := prof.Begin(method, conn, now)
		call.Request(64, offset, uint32(offset/64+1), 0, 1)
		call.Start(role, now)
		call.StampAt(rpcprof.Handler, now)
		call.StampAt(rpcprof.Handled, now)
		call.Stamp(rpcprof.Write)
		if _, err := c.Write(b); err != nil {
			return
		}
		call.Stamp(rpcprof.Sent)
		call.End(rpcprof.OK)
	}
}

// start starts a target and waits until it says that it is ready.
func start(t *testing.T, kind string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(append(os.Environ(), targetEnv+"="+kind), env...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if slices.Contains(env, ownNamespace) {
		c.SysProcAttr.Cloneflags = unix.CLONE_NEWPID
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // the target dies with the thread that starts it
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait(); runtime.UnlockOSThread() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if strings.TrimSpace(line) != "ready" {
		t.Fatalf("target %s: %q %v", kind, line, err)
	}
	return c
}
