package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rpcprof/toolkit/examples/faults"
)

type demoCmd struct {
	Fault    string        `default:"pool" help:"What is wrong with the service: none, lock, pool, inline, hog, sleep or disk."`
	Every    bool          `help:"The fault hits all calls instead of about 10 %."`
	For      time.Duration `default:"5s" help:"How long to look."`
	JSON     bool          `name:"json" help:"Write the report as JSON."`
	Overhead bool          `help:"Measure instead what attaching costs: throughput with and without, in pairs."`
}

func (d *demoCmd) Run(ctx context.Context, con *console) error {
	f, err := faults.Lookup(d.Fault)
	if err != nil {
		return usageError{err.Error()}
	}
	if d.For <= 0 {
		return usageError{"--for takes a duration above zero, such as 5s"}
	}
	// Children die with this process, however it ends. The kernel ties that to the
	// thread that starts them, so they are started from one that stays.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, err := startStage(ctx, con, f, d.Every)
	if err != nil {
		return err
	}
	defer s.close()
	if d.Overhead {
		return d.overhead(ctx, con, s)
	}
	if err := s.load(false, 0); err != nil {
		return err
	}
	if !sleep(ctx, 700*time.Millisecond) { // connections, pools and the heap settle
		return nil
	}
	if con.errTTY {
		fmt.Fprintf(con.err, "demo: fault %q: %s\n", f.Name, f.Help)
	}
	report, err := look(ctx, con, s.server.Process.Pid, d.For, 0)
	if err != nil {
		return err
	}
	return show(con, report, d.JSON)
}

// stage is what a demo is played on: the server, the load and whatever disturbs them.
type stage struct {
	con    *console
	fault  faults.Fault
	every  bool
	dir    string
	addr   string
	server *exec.Cmd
	others []*exec.Cmd
}

func startStage(ctx context.Context, con *console, f faults.Fault, every bool) (*stage, error) {
	dir, err := diskDir()
	if err != nil {
		return nil, err
	}
	s := &stage{con: con, fault: f, every: every, dir: dir}
	out, w, err := os.Pipe()
	if err != nil {
		s.close()
		return nil, err
	}
	defer out.Close()
	s.server, err = s.child(w, "demo-server", "--fault", f.Name, "--dir", dir)
	_ = w.Close()
	if err != nil {
		s.close()
		return nil, err
	}
	ready := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		ready <- strings.TrimSpace(line)
	}()
	select {
	case line := <-ready:
		addr, ok := strings.CutPrefix(line, "ready ")
		if !ok {
			s.close()
			return nil, errors.New("the demo's server did not start")
		}
		s.addr = addr
	case <-time.After(5 * time.Second):
		s.close()
		return nil, errors.New("the demo's server did not start within 5 s")
	case <-ctx.Done():
		s.close()
		return nil, errors.New("interrupted before there was anything to see")
	}
	if f.Hog {
		for range faults.HogProcesses() {
			args := []string{"demo-hog"}
			if every {
				args = append(args, "--every")
			}
			h, err := s.child(nil, args...)
			if err != nil {
				s.close()
				return nil, err
			}
			s.others = append(s.others, h)
		}
	}
	return s, nil
}

// child starts this program again under a hidden command, in a process group of
// its own so that Ctrl-C reaches it only through this one.
func (s *stage) child(stdout *os.File, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(self, args...)
	if stdout != nil {
		c.Stdout = stdout
	}
	c.Stderr = s.con.err
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	return c, nil
}

// loadArgs gives the load's command line.
func (s *stage) loadArgs(closed bool, d time.Duration) []string {
	args := []string{"demo-load", "--fault", s.fault.Name, "--addr", s.addr}
	if s.every {
		args = append(args, "--every")
	}
	if closed {
		args = append(args, "--closed")
	}
	if d > 0 {
		args = append(args, "--for", d.String())
	}
	return args
}

func (s *stage) load(closed bool, d time.Duration) error {
	c, err := s.child(nil, s.loadArgs(closed, d)...)
	if err == nil {
		s.others = append(s.others, c)
	}
	return err
}

// throughput runs a closed load for a while and gives its calls per second.
func (s *stage) throughput(d time.Duration) (faults.LoadResult, error) {
	var r faults.LoadResult
	out, w, err := os.Pipe()
	if err != nil {
		return r, err
	}
	defer out.Close()
	c, err := s.child(w, s.loadArgs(true, d)...)
	_ = w.Close()
	if err != nil {
		return r, err
	}
	b, readErr := io.ReadAll(out)
	if err := errors.Join(readErr, c.Wait()); err != nil {
		return r, fmt.Errorf("the demo's load failed: %w", err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("the demo's load said nothing that can be read: %w", err)
	}
	return r, nil
}

// close ends the children and removes what was made.
func (s *stage) close() {
	all := s.others
	if s.server != nil {
		all = append(all, s.server)
	}
	for _, c := range all {
		_ = c.Process.Signal(syscall.SIGTERM)
	}
	for _, c := range all {
		t := time.AfterFunc(time.Second, func() { _ = c.Process.Kill() })
		_ = c.Wait()
		t.Stop()
	}
	_ = os.RemoveAll(s.dir)
}

// diskDir makes a directory on a file system that has a disk behind it.
func diskDir() (string, error) {
	wd, _ := os.Getwd()
	var first error
	for _, at := range []string{os.TempDir(), "/var/tmp", wd} {
		var st unix.Statfs_t
		if at == "" || unix.Statfs(at, &st) != nil || st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC {
			continue
		}
		dir, err := os.MkdirTemp(at, "rpcprof-demo-")
		if err == nil {
			return filepath.Clean(dir), nil
		}
		first = err
	}
	dir, err := os.MkdirTemp("", "rpcprof-demo-")
	if err != nil {
		return "", fmt.Errorf("no directory to work in: %w", errors.Join(first, err))
	}
	return dir, nil
}

// sleep waits, and says whether it was not interrupted.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
