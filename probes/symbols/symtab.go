package symbols

import (
	"cmp"
	"debug/elf"
	"slices"
)

// maxSymbols bounds the symbols taken of one file, 24 bytes each.
const maxSymbols = 2 << 20

type symbol struct {
	addr, size uint64
	name       uint32 // in the string table; names are read when asked for
	table      uint8
}

// symtab is the function symbols of a file, sorted by address. It names what
// is no Go code, and that without lines.
type symtab struct {
	f    *elfFile
	syms []symbol
	strs []section // string tables, by symbol.table
}

func readSymtab(f *elfFile) *symtab {
	t := &symtab{f: f}
	t.each(func(s symbol, info byte) bool {
		if elf.ST_TYPE(info) == elf.STT_FUNC && s.addr != 0 {
			t.syms = append(t.syms, s)
		}
		return len(t.syms) < maxSymbols
	})
	slices.SortStableFunc(t.syms, func(a, b symbol) int { return cmp.Compare(a.addr, b.addr) })
	t.syms = slices.Clip(t.syms)
	return t
}

// each visits the defined symbols of .symtab and .dynsym until visit is false.
func (t *symtab) each(visit func(symbol, byte) bool) {
	t.strs = t.strs[:0]
	for _, sec := range t.f.secs {
		typ := elf.SectionType(sec.typ)
		if typ != elf.SHT_SYMTAB && typ != elf.SHT_DYNSYM || sec.link >= uint32(len(t.f.secs)) || len(t.strs) > 7 {
			continue
		}
		t.strs = append(t.strs, t.f.secs[sec.link])
		const each = elf.Sym64Size
		buf := make([]byte, 4096*each)
		for off := uint64(0); off < min(sec.size, 2*maxSymbols*each); {
			b := buf[:min(uint64(len(buf)), (sec.size-off)/each*each)]
			if len(b) == 0 || !t.f.file(sec.off+off, b) {
				break
			}
			off += uint64(len(b))
			for ; len(b) > 0; b = b[each:] {
				s := symbol{addr: u64(b[8:]), size: u64(b[16:]), name: u32(b), table: uint8(len(t.strs) - 1)}
				if (b[6] != 0 || b[7] != 0) && !visit(s, b[4]) {
					return
				}
			}
		}
	}
}

func (t *symtab) name(s symbol) string {
	str := t.strs[s.table]
	return readString(fileView{t.f}, str.off+uint64(s.name), str.off+str.size)
}

// find names the function at an address. A symbol without a size, such as of
// assembly, reaches to the next one.
func (t *symtab) find(addr uint64) string {
	i, _ := slices.BinarySearchFunc(t.syms, addr, func(s symbol, a uint64) int {
		if s.addr <= a {
			return -1
		}
		return 1
	})
	// A few symbols back, as short symbols can lie inside a long one.
	for k := i - 1; k >= 0 && k >= i-8; k-- {
		s := t.syms[k]
		if addr-s.addr < s.size || s.size == 0 && k == i-1 && addr-s.addr < 1<<20 {
			return t.name(s)
		}
	}
	return ""
}

// lookup finds a symbol of any kind by its name.
func lookup(f *elfFile, name string) (symbol, bool) {
	t := &symtab{f: f}
	var found symbol
	ok := false
	want := []byte(name + "\x00")
	got := make([]byte, len(want))
	t.each(func(s symbol, _ byte) bool {
		str := t.strs[s.table]
		if uint64(s.name) < str.size && f.file(str.off+uint64(s.name), got) && string(got) == string(want) {
			found, ok = s, true
		}
		return !ok
	})
	return found, ok
}
