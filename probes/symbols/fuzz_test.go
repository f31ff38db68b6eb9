package symbols

import (
	"bytes"
	"os"
	"testing"
)

// patched is a memory with some bytes changed.
type patched struct {
	memory
	at    uint64
	bytes []byte
}

func (p patched) read(addr uint64, buf []byte) bool {
	if !p.memory.read(addr, buf) {
		return false
	}
	for i := range buf {
		if off := addr + uint64(i) - p.at; off < uint64(len(p.bytes)) {
			buf[i] = p.bytes[off]
		}
	}
	return true
}

// own is the file of the test itself.
func own(t testing.TB) *elfFile {
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { file.Close() })
	i, err := newImage(file)
	if err != nil {
		t.Fatal(err)
	}
	return i.elf
}

// FuzzTable changes bytes of a real function table and looks addresses up.
func FuzzTable(f *testing.F) {
	e := own(f)
	good := goImage(e, nil, 0)
	if good == nil {
		f.Fatal("no table in the test itself")
	}
	lo, hi := good.bounds()
	f.Add(uint64(0), []byte{}, uint64(0))
	f.Add(uint64(8), []byte{1, 0, 0}, uint64(5000))
	f.Add(good.funcs, bytes.Repeat([]byte{0xff}, 64), uint64(0))
	f.Add(good.pctab, bytes.Repeat([]byte{0x80}, 64), uint64(100))
	for i := range uint64(8) {
		fn, ok := good.fn(i * good.nfunc / 9)
		if !ok {
			f.Fatal("no function")
		}
		f.Add(fn.addr, bytes.Repeat([]byte{0x7f}, funcHeader+32), fn.entry-lo)
		f.Add(fn.addr+28, []byte{0xff, 0xff, 0xff, 0xff}, fn.entry-lo)
		f.Add(good.pctab+uint64(fn.pcln), []byte{2, 0, 2, 0, 2, 0}, fn.entry-lo)
		if tree, ok := good.tree(fn); ok {
			f.Add(tree-good.addr, make([]byte, inlinedSize), fn.entry-lo)
		}
	}
	f.Fuzz(func(t *testing.T, at uint64, patch []byte, pc uint64) {
		m := patched{e, good.addr + at%(2*good.size), patch}
		if tab, ok := parseTable(m, good.addr, good.size); ok {
			tab.text, tab.gofunc = good.text, good.gofunc
			if n := len(tab.frames(lo + pc%(hi-lo))); n > maxInline+1 {
				t.Errorf("%d frames", n)
			}
			tab.frames(pc)
			tab.treesDecode()
		}
	})
}

// FuzzFile takes any bytes for an executable.
func FuzzFile(f *testing.F) {
	e := own(f)
	var head [2048]byte
	if !e.file(0, head[:]) {
		f.Fatal("no header")
	}
	f.Add(head[:], uint64(0x401000))
	f.Add(head[:100], uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, pc uint64) {
		e, err := parseELF(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		i := &image{elf: e}
		i.load(0, nil)
		i.frames(pc)
		for _, s := range e.segs {
			i.frames(s.addr + 1)
		}
		waitReasons(e, goVersion(e))
	})
}

func FuzzMaps(f *testing.F) {
	f.Add([]byte("00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/a b (deleted)\n"))
	f.Add([]byte("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0   [vsyscall]\n0-0 --x\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range readMaps(bytes.NewReader(b)) {
			if m.lo >= m.hi {
				t.Error("empty mapping")
			}
		}
	})
}
