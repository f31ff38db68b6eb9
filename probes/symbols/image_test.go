package symbols

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadable(t *testing.T) {
	for mangled, want := range map[string]string{
		"_ZN6orders5Store3PutERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE": "orders::Store::Put",
		"_ZN6orders7convertIiEEvT_":              "orders::convert",
		"nanosleep":                              "nanosleep",
		"runtime.mallocgc":                       "runtime.mallocgc",
		"_Zbroken":                               "_Zbroken",
		"_RNvC6orders3put":                       "orders::put",
		"_ZN" + strings.Repeat("1a", 5000) + "E": "_ZN" + strings.Repeat("1a", 5000) + "E",
	} {
		got := readable(mangled)
		if len(mangled) > 1000 { // as it is, or cut, but no longer
			if len(got) > len(mangled) {
				t.Errorf("a name of %d bytes became one of %d", len(mangled), len(got))
			}
			continue
		}
		if got != want {
			t.Errorf("%s is %q, want %q", mangled, got, want)
		}
	}
}

// A C++ executable's functions have their names from its ELF symbols.
func TestCPlusPlus(t *testing.T) {
	cc, err := exec.LookPath("c++")
	if err != nil {
		t.Skip("no C++ compiler here")
	}
	dir := t.TempDir()
	src, exe := filepath.Join(dir, "a.cc"), filepath.Join(dir, "a.out")
	const code = `#include <time.h>
namespace orders { struct Store { template<class T> __attribute__((noinline)) int Put(T n) { timespec t{n, 0}; return nanosleep(&t, 0); } }; }
int main() { return orders::Store().Put(60L); }`
	if err := os.WriteFile(src, []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-O0", "-o", exe, src).CombinedOutput(); err != nil {
		t.Skipf("the compiler does not work here: %v %s", err, out)
	}
	f, err := os.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	i, err := newImage(f)
	if err != nil {
		t.Fatal(err)
	}
	i.load(0, nil)
	s, ok := lookup(i.elf, "_ZN6orders5Store3PutIlEEiT_")
	if !ok {
		t.Fatal("no such symbol")
	}
	if fs := i.frames(s.addr + 4); len(fs) != 1 || fs[0].Func != "orders::Store::Put" || fs[0].Module != "" {
		t.Errorf("frames are %+v", fs)
	}
}
