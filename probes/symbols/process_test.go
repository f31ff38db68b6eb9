package symbols

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rpcprof/toolkit/rpcprof/profile"
)

func open(t testing.TB, pid int) *Process {
	t.Helper()
	p, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// compare checks all frames of a program against those of its own runtime.
func compare(t *testing.T, p *Process, out output) {
	t.Helper()
	deepest := 0
	for _, c := range out.Calls {
		if diff := cmp.Diff(c.Frames, p.Frames(c.PC, c.Exact)); diff != "" {
			t.Errorf("%#x (-runtime +got):\n%s", c.PC, diff)
		}
		deepest = max(deepest, len(c.Frames))
	}
	if p.main.gos.gofunc == 0 && deepest > 1 {
		t.Error("no inline trees")
	}
	t.Logf("%d addresses, up to %d frames each", len(out.Calls), deepest)
}

func TestFrames(t *testing.T) {
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			pid, _, out := start(t, f.cgo, nil, f.flags...)
			p := open(t, pid)
			compare(t, p, out)
			if p.GoVersion() != out.Version {
				t.Errorf("version %q, want %q", p.GoVersion(), out.Version)
			}
			if got := p.WaitReason(2); got != "IO wait" && got != "" {
				t.Errorf("wait reason %q", got)
			}
			if f.cgo && !strings.Contains(f.name, "stripped") {
				if got := p.Frames(out.C, true); got[0].Func != "cfunction" {
					t.Errorf("C function: %v", got)
				}
			}
		})
	}
}

// TestMemoryOnly has neither section headers' help nor relocations: moduledata
// comes out of the process's memory, the table is found by its magic number.
func TestMemoryOnly(t *testing.T) {
	for _, pie := range []string{"exe", "pie"} {
		pid, _, out := start(t, false, nil, "-buildmode="+pie, "-ldflags=-s -w")
		p := open(t, pid)
		if p.live() == nil {
			t.Skip("the memory of a child cannot be read here")
		}
		p.main.elf.secs = nil
		p.main.load(p.main.bias, p.live())
		if p.main.gos == nil {
			t.Fatal("no table")
		}
		compare(t, p, out)
		if got := goVersion(p.main.elf); got != out.Version {
			t.Errorf("version %q", got)
		}
	}
}

// TestReplaced opens a process whose file is gone.
func TestReplaced(t *testing.T) {
	pid, exe, out := start(t, false, nil)
	if err := os.Remove(exe); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	compare(t, open(t, pid), out)
}

// TestOlderToolchain runs where the toolchain named in SYMBOLS_TOOLCHAIN, such
// as go1.25.0, is at hand.
func TestOlderToolchain(t *testing.T) {
	name := os.Getenv("SYMBOLS_TOOLCHAIN")
	if name == "" {
		t.Skip("SYMBOLS_TOOLCHAIN is not set")
	}
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			pid, _, out := start(t, f.cgo, []string{"GOTOOLCHAIN=" + name}, f.flags...)
			p := open(t, pid)
			if p.GoVersion() != name {
				t.Fatalf("version %q", p.GoVersion())
			}
			compare(t, p, out)
			checkReasons(t, p)
		})
	}
}

// checkReasons compares what a binary says with the table of its version.
func checkReasons(t *testing.T, p *Process) {
	t.Helper()
	s, ok := lookup(p.main.elf, "runtime.waitReasonStrings")
	if !ok {
		return
	}
	got, want := readReasons(p.main.elf, s), waitReasons126
	if strings.HasPrefix(p.GoVersion(), "go1.25") {
		want = waitReasons125
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wait reasons (-table +binary):\n%s", diff)
	}
}

func TestWaitReason(t *testing.T) {
	for _, mode := range []string{"-buildmode=exe", "-buildmode=pie"} {
		pid, _, out := start(t, false, nil, mode)
		p := open(t, pid)
		if !strings.HasPrefix(out.Version, "go1.25") && !strings.HasPrefix(out.Version, "go1.26") {
			t.Skip("no table of this version")
		}
		checkReasons(t, p)
		if got := p.WaitReason(2); !slices.Contains([]string{waitReasons125[2], waitReasons126[2]}, got) {
			t.Errorf("reason 2 is %q", got)
		}
		if got := p.WaitReason(255); got != "" {
			t.Errorf("reason 255 is %q", got)
		}
	}
	f := &elfFile{}
	for version, want := range map[string]int{"go1.26": 47, "go1.25rc1": 47, "go1.26.8 X:nospin": 47, "go1.250": 0, "go1.24.1": 0, "": 0} {
		if got := len(waitReasons(f, version)); got != want {
			t.Errorf("%q has %d reasons, want %d", version, got, want)
		}
	}
}

func TestOtherProgram(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	p := open(t, cmd.Process.Pid)
	if p.GoVersion() != "" || p.WaitReason(1) != "" {
		t.Error("no Go binary, but it has a version or wait reasons")
	}
	p.mapped = p.mapped.Add(-2 * remapInterval) // the program may have been starting
	names := map[string]bool{}
	for _, pc := range []uint64{0, 1, 1 << 40, 1 << 63, ^uint64(0)} {
		if got := p.Frames(pc, pc == 0); len(got) != 1 || got[0].Func != unknown {
			t.Errorf("%#x: %v", pc, got)
		}
	}
	for _, m := range p.maps {
		for pc := m.lo; pc < m.hi; pc += 1 + (m.hi-m.lo)/500 {
			got := p.Frames(pc, true)
			if len(got) != 1 || got[0].Func == "" || got[0].Kernel {
				t.Fatalf("%#x: %v", pc, got)
			}
			names[got[0].Func] = true
		}
	}
	t.Logf("%d names, such as malloc: %t, [vdso]: %t", len(names), names["malloc"], names["[vdso]"])
	if len(names) < 5 {
		t.Errorf("names %v", names)
	}
}

func TestOpenFails(t *testing.T) {
	if _, err := Open(1 << 30); err == nil {
		t.Error("a process that is not there was opened")
	}
}

func TestClosed(t *testing.T) {
	p, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]profile.Frame{{Func: unknown}}, p.Frames(1, true)); diff != "" {
		t.Error(diff)
	}
}
