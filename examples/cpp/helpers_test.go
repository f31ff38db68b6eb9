//go:build linux

package cpp

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// patience bounds waiting for what must happen; nothing is measured by it.
const patience = 20 * time.Second

var warnings = []string{"-O2", "-g", "-Wall", "-Wextra", "-pedantic", "-Werror", "-pthread"}

// built is where the server is, which all tests share.
var built string

func TestMain(m *testing.M) {
	var err error
	if built, err = os.MkdirTemp("", "rpcprof-cpp"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(built)
	os.Exit(code)
}

// compiler skips the test where there is none.
func compiler(t *testing.T, name string) string {
	t.Helper()
	// What a compiler reads, go test does not see: unless the test looks at it too, its
	// result would be taken from the cache.
	for _, pattern := range []string{"*.h", "*.hpp", "*.cpp", "testdata/*"} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			_, _ = os.Stat(path)
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("RPCPROF_REQUIRE_PROBES") != "" {
			t.Fatalf("no %s here, where nothing may be skipped", name)
		}
		t.Skipf("no %s here", name)
	}
	return path
}

func run(t *testing.T, stdin string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// await looks until what is awaited is there.
func await(t *testing.T, what string, there func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !there(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// server is a running server, and its segment.
type server struct {
	t    *testing.T
	cmd  *exec.Cmd
	pid  int
	addr string
	seg  *segment.File
	raw  *os.File // the same, for what segment.File does not show
	h    segment.Header
}

func start(t *testing.T, args ...string) *server {
	t.Helper()
	gxx := compiler(t, "g++")
	bin := filepath.Join(built, "server")
	if _, err := os.Stat(bin); err != nil {
		run(t, "", gxx, append(warnings, "-std=c++17", "-o", bin, "server.cpp")...)
	}
	s := &server{t: t, cmd: exec.Command(bin, append([]string{"--addr", "127.0.0.1:0"}, args...)...)}
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if err != nil || !ok {
		t.Fatalf("the server said %q, %v", line, err)
	}
	s.addr, s.pid = addr, s.cmd.Process.Pid
	s.seg, s.raw = find(t, s.pid)
	s.h = s.seg.Header()
	return s
}

// find opens a process's one segment.
func find(t *testing.T, pid int) (*segment.File, *os.File) {
	t.Helper()
	segs, err := segment.Find(pid)
	if err != nil || len(segs) != 1 {
		t.Fatalf("%d segments, %v", len(segs), err)
	}
	t.Cleanup(func() { _ = segs[0].Close() })
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, path := range fds {
		if link, _ := os.Readlink(path); strings.HasPrefix(link, "/memfd:rpcprof ") {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			return segs[0], f
		}
	}
	t.Fatal("no memfd")
	return nil, nil
}

// comm is the name of a thread of the server, empty when it has no such thread.
func (s *server) comm(tid uint32) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", s.pid, tid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// follow goes the way of a BPF program: from a thread to its slot.
func follow(t *testing.T, h *segment.Header, raw io.ReaderAt, tid uint32) (uint32, bool) {
	t.Helper()
	b := make([]byte, segment.BucketSize)
	at := int64(h.IndexOff) + int64(segment.BucketOf(uint64(tid), h.IndexBits))*segment.BucketSize
	if _, err := raw.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	for i := range segment.BucketEntries {
		if e := b[16*i:]; binary.LittleEndian.Uint64(e) == uint64(tid) {
			return binary.LittleEndian.Uint32(e[8:]), true
		}
	}
	return 0, false
}

// method gives the id of a method by its name.
func (s *server) method(name string) uint32 {
	s.t.Helper()
	ms, err := s.seg.Methods()
	for i := range ms {
		if ms[i].NameString() == name && ms[i].Side == segment.Server {
			return uint32(i)
		}
	}
	s.t.Fatalf("no method %s in %v, %v", name, ms, err)
	return 0
}

// client is the least client of the protocol in rpcprof/pipeline/doc.go.
type client struct {
	t    *testing.T
	nc   net.Conn
	seq  uint64
	sent int64
}

func (s *server) dial() *client {
	s.t.Helper()
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(3 * patience))
	return &client{t: s.t, nc: nc}
}

// send sends requests in one write, without waiting for replies.
func (c *client) send(method string, payloads ...string) {
	c.t.Helper()
	var b []byte
	for _, p := range payloads {
		c.seq++
		b = binary.LittleEndian.AppendUint32(b, uint32(9+2+len(method)+8+len(p)))
		b = binary.LittleEndian.AppendUint64(b, c.seq)
		b = append(b, 1)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(method)))
		b = append(b, method...)
		b = binary.LittleEndian.AppendUint64(b, 0)
		b = append(b, p...)
	}
	c.sent += int64(len(b))
	if _, err := c.nc.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// reply is a reply's or an error's kind and payload.
type reply struct {
	kind byte
	body string
}

// receive takes n replies, whatever their order.
func (c *client) receive(n int) map[uint64]reply {
	c.t.Helper()
	out := map[uint64]reply{}
	for range n {
		head := make([]byte, 13)
		if _, err := io.ReadFull(c.nc, head); err != nil {
			c.t.Fatal(err)
		}
		body := make([]byte, binary.LittleEndian.Uint32(head)-9)
		if _, err := io.ReadFull(c.nc, body); err != nil {
			c.t.Fatal(err)
		}
		out[binary.LittleEndian.Uint64(head[4:])] = reply{head[12], string(body)}
	}
	if len(out) != n {
		c.t.Fatalf("%d replies to %d requests", len(out), n)
	}
	return out
}

// call makes one call.
func (c *client) call(method, payload string) reply {
	c.t.Helper()
	c.send(method, payload)
	return c.receive(1)[c.seq]
}
