package symbols

import (
	"bufio"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestKernel(t *testing.T) {
	k, err := OpenKernel()
	if errors.Is(err, ErrKernelHidden) || errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := 0
	for sc := bufio.NewScanner(f); sc.Scan(); {
		w := strings.Fields(sc.Text())
		switch w[2] {
		case "schedule", "do_sys_openat2", "vfs_read", "tcp_sendmsg", "futex_wait":
			pc, err := strconv.ParseUint(w[0], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			for _, pc := range []uint64{pc, pc + 1} {
				if got := k.Frame(pc); got.Func != w[2] || !got.Kernel {
					t.Errorf("%#x: %+v, want %s", pc, got, w[2])
				}
			}
			found++
		}
	}
	if found == 0 {
		t.Skip("the kernel has none of the known functions")
	}
	for _, pc := range []uint64{0, 1, ^uint64(0)} {
		if got := k.Frame(pc); got.Func != unknown {
			t.Errorf("%#x: %+v", pc, got)
		}
	}
}

func TestReadKernel(t *testing.T) {
	k, err := readKernel(strings.NewReader("ffffffff81000000 t __first\nffffffff81000000 T first\n" +
		"ffffffff81000100 D data\nbad\n\nzz T x\nffffffff81000200 t work.isra.0.cold\nffffffffc0000000 t inmod\t[mod]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for pc, want := range map[uint64]string{0xffffffff81000000: "first", 0xffffffff81000150: "first",
		0xffffffff81000210: "work", 0xffffffffc0000001: "inmod", 0xffffffff80ffffff: unknown, ^uint64(0): unknown} {
		if got := k.Frame(pc); got.Func != want {
			t.Errorf("%#x: %s, want %s", pc, got.Func, want)
		}
	}
	if _, err := readKernel(strings.NewReader("0000000000000000 T a\n0000000000000000 t b\n")); !errors.Is(err, ErrKernelHidden) {
		t.Errorf("hidden addresses: %v", err)
	}
	if _, err := readKernel(strings.NewReader("")); err == nil {
		t.Error("nothing was accepted")
	}
}

func TestPlainName(t *testing.T) {
	for name, want := range map[string]string{"a": "a", "a.isra.0": "a", "a.constprop.12": "a", "a.part.0.cold": "a",
		"a.cold": "a", "a.llvm.99": "a", "a.b": "a.b", "a.7": "a.7", ".cold": ".cold", "a.other.0": "a.other.0", "": ""} {
		if got := plainName(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
