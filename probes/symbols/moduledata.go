package symbols

import "debug/elf"

// The words of a runtime.moduledata that are looked at (src/runtime/symtab.go).
// They are the same in Go 1.20 to 1.26: 1.26 has added epclntab after gofunc.
const (
	mdHeader = 0 // pcHeader
	mdNames  = 1
	mdCU     = 4
	mdFiles  = 7
	mdPctab  = 10
	mdFuncs  = 13
	mdFtab   = 16
	mdMinPC  = 20
	mdMaxPC  = 21
	mdText   = 22
	mdEtext  = 23
	mdGofunc = 40
	mdWords  = 48
)

// Limits on the search: places that look like moduledata, of which few are,
// and bytes of relocations.
const (
	maxTries  = 16
	maxRelocs = 64 << 20
)

// modules holds the ways to read moduledata: as the file has it, as the
// relocations of the file make it, and as it is in the process.
type modules struct {
	f    *elfFile
	live memory // of the process, nil when there is none
	bias uint64
}

// locate fills t.text and t.gofunc from the moduledata that belongs to t.
func (m modules) locate(t *table) bool {
	spans := m.dataSpans()
	tries := 0
	try := func(words func(uint64) [mdWords]uint64, addr uint64) bool {
		tries++
		return tries <= maxTries && m.accept(t, words(addr))
	}
	for _, s := range spans {
		if scan(m.f, s, func(addr uint64, b []byte) bool {
			return u64(b) == t.addr && try(m.fileWords, addr)
		}) {
			return true
		}
	}
	// In position-independent files the words can be zero and come from
	// relocations that have them as addends.
	var at []uint64
	m.relocations(func(off, addend uint64) {
		if addend == t.addr && len(at) < maxTries {
			at = append(at, off)
		}
	})
	for _, addr := range at {
		if try(m.fileWords, addr) {
			return true
		}
	}
	if m.live == nil {
		return false
	}
	tries = 0
	for _, s := range spans {
		if scan(m.live, span{s.addr + m.bias, s.size}, func(addr uint64, b []byte) bool {
			return u64(b) == t.addr+m.bias && try(m.liveWords, addr)
		}) {
			return true
		}
	}
	return false
}

// dataSpans are the places a moduledata can be in: sections it is known to be
// in, then everything that can be written to.
func (m modules) dataSpans() []span {
	if s, ok := m.f.section(".go.module"); ok { // since Go 1.26
		return []span{{s.addr, s.size}}
	}
	var out []span
	for _, name := range []string{".noptrdata", ".data", ".data.rel.ro"} {
		if s, ok := m.f.section(name); ok && s.addr != 0 {
			out = append(out, span{s.addr, s.size})
		}
	}
	return append(out, m.f.spans(true)...)
}

// fileWords reads the words at addr with relocations applied.
func (m modules) fileWords(addr uint64) (w [mdWords]uint64) {
	var b [mdWords * 8]byte
	if !m.f.read(addr, b[:]) {
		return w
	}
	for i := range w {
		w[i] = u64(b[i*8:])
	}
	m.relocations(func(off, addend uint64) {
		if i := (off - addr) / 8; off >= addr && i < mdWords && off%8 == addr%8 {
			w[i] = addend
		}
	})
	return w
}

// liveWords reads words of the process and takes the bias off again. Lengths
// come out wrong that way, but none is looked at.
func (m modules) liveWords(addr uint64) (w [mdWords]uint64) {
	var b [mdWords * 8]byte
	if !m.live.read(addr, b[:]) {
		return w
	}
	for i := range w {
		w[i] = u64(b[i*8:]) - m.bias
	}
	return w
}

// relocations visits the relative relocations of the file.
func (m modules) relocations(visit func(off, addend uint64)) {
	var rel uint32
	switch m.f.machine {
	case elf.EM_X86_64:
		rel = uint32(elf.R_X86_64_RELATIVE)
	case elf.EM_AARCH64:
		rel = uint32(elf.R_AARCH64_RELATIVE)
	default:
		return
	}
	const each = 24 // Elf64_Rela
	buf := make([]byte, 4096*each)
	left := uint64(maxRelocs)
	for _, s := range m.f.secs {
		if elf.SectionType(s.typ) != elf.SHT_RELA || elf.SectionFlag(s.flags)&elf.SHF_ALLOC == 0 {
			continue
		}
		size := min(s.size, left)
		left -= size
		for off := uint64(0); off < size; {
			b := buf[:min(uint64(len(buf)), (size-off)/each*each)]
			if len(b) == 0 || !m.f.file(s.off+off, b) {
				break
			}
			off += uint64(len(b))
			for ; len(b) > 0; b = b[each:] {
				if uint32(u64(b[8:])) == rel {
					visit(u64(b), u64(b[16:]))
				}
			}
		}
	}
}

// accept takes words as the moduledata of t when they agree with its header
// and its first and last function, as runtime.moduledataverify1 has it.
func (m modules) accept(t *table, w [mdWords]uint64) bool {
	for i, off := range map[int]uint64{mdHeader: 0, mdNames: t.names, mdCU: t.cu, mdFiles: t.files,
		mdPctab: t.pctab, mdFuncs: t.funcs, mdFtab: t.funcs} {
		if w[i] != t.addr+off {
			return false
		}
	}
	c := *t
	c.text = w[mdText]
	lo, hi := c.bounds()
	if lo != w[mdMinPC] || hi != w[mdMaxPC] || lo >= hi || w[mdText] >= w[mdEtext] {
		return false
	}
	t.text = c.text
	for _, i := range [...]int{mdGofunc, 36, 37, 38, 39, 41, 42, 43, 44, 45, 46, 47} {
		if c.gofunc = w[i]; c.treesDecode() {
			t.gofunc = c.gofunc
			break
		}
	}
	return true
}

// treesDecode tells whether the inline trees of some functions make sense at
// the table's gofunc.
func (t *table) treesDecode() bool {
	const want, looks = 32, 4096
	seen := 0
	for i := uint64(0); i < t.nfunc && seen < want; i += max(1, t.nfunc/looks) {
		f, ok := t.fn(i)
		if !ok {
			return false
		}
		tree, ok := t.tree(f)
		if !ok {
			continue
		}
		call, ok := t.inlinedCall(tree, 0)
		if !ok || uint64(call.parent) >= f.end-f.entry || !t.startsName(call.name) {
			return false
		}
		seen++
	}
	return seen > 0
}

// startsName tells whether a name begins at off: names follow each other, each
// with a zero byte at its end.
func (t *table) startsName(off uint32) bool {
	var b [2]byte
	at := t.names + uint64(off)
	return off > 0 && at < t.cu && t.mem.read(t.addr+at-1, b[:]) && b[0] == 0 && b[1] > ' '
}
