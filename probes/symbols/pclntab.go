package symbols

import (
	"sort"
	"strings"
)

// The layout of the function table is that of Go 1.20 and later: src/runtime/
// symtab.go (pcHeader, functab, pcvalue, step), src/runtime/runtime2.go (_func)
// and src/cmd/link/internal/ld/pcln.go, which writes it.
const (
	pclnMagic  = 0xfffffff1 // internal/abi Go120PCLnTabMagic
	pclnHeader = 72
	funcHeader = 44

	pcdataInlTree   = 2 // internal/abi PCDATA_InlTreeIndex
	funcdataInlTree = 3 // internal/abi FUNCDATA_InlTree

	maxFuncs = 1 << 26
	maxSteps = 1 << 19 // entries of pc-value tables gone through for one address
)

// table is the Go function table of one file. Addresses are those of the file,
// before relocation.
type table struct {
	mem        memory
	addr, size uint64
	quantum    uint64 // size of the smallest instruction
	nfunc      uint64

	// Offsets of the parts from addr.
	names, cu, files, pctab, funcs uint64

	textStart uint64 // as in the header, zero since Go 1.26
	text      uint64 // what function entries are relative to
	gofunc    uint64 // what funcdata is relative to, zero where unknown

	steps int // left of maxSteps
}

// fn is what is needed of a runtime._func.
type fn struct {
	addr, entry        uint64
	end                uint64 // entry of the next function
	name               uint32
	pcfile, pcln, cu   uint32
	npcdata, nfuncdata uint32
	startLine          uint32
}

// parseTable reads the header at addr. The text start is not known from it.
func parseTable(m memory, addr, size uint64) (*table, bool) {
	var h [pclnHeader]byte
	if size < pclnHeader || addr+size < addr || !m.read(addr, h[:]) {
		return nil, false
	}
	if u32(h[:]) != pclnMagic || h[4] != 0 || h[5] != 0 || h[7] != 8 || h[6] != 1 && h[6] != 2 && h[6] != 4 {
		return nil, false
	}
	t := &table{mem: m, addr: addr, size: size, quantum: uint64(h[6]), nfunc: u64(h[8:]), textStart: u64(h[24:]),
		names: u64(h[32:]), cu: u64(h[40:]), files: u64(h[48:]), pctab: u64(h[56:]), funcs: u64(h[64:])}
	for _, off := range []uint64{t.names, t.cu, t.files, t.pctab, t.funcs} {
		if off < pclnHeader || off >= size {
			return nil, false
		}
	}
	if t.nfunc == 0 || t.nfunc > maxFuncs || t.nfunc*8+4 > size-t.funcs {
		return nil, false
	}
	return t, true
}

// u32 reads a word off bytes into the table.
func (t *table) u32(off uint64) (uint32, bool) {
	if off >= t.size || t.size-off < 4 {
		return 0, false
	}
	return readU32(t.mem, t.addr+off)
}

// entry gives the offset of the i-th function from the text start; the one
// after the last is the end of the last.
func (t *table) entry(i uint64) (uint32, bool) { return t.u32(t.funcs + i*8) }

// bounds are the addresses the table covers.
func (t *table) bounds() (lo, hi uint64) {
	a, ok1 := t.entry(0)
	b, ok2 := t.entry(t.nfunc)
	if !ok1 || !ok2 {
		return 0, 0
	}
	return t.text + uint64(a), t.text + uint64(b)
}

// find looks the function of an address up.
func (t *table) find(pc uint64) (fn, bool) {
	lo, hi := t.bounds()
	if pc < lo || pc >= hi {
		return fn{}, false
	}
	off := pc - t.text
	i := sort.Search(int(t.nfunc), func(i int) bool {
		e, ok := t.entry(uint64(i))
		return !ok || uint64(e) > off
	})
	if i == 0 {
		return fn{}, false
	}
	return t.fn(uint64(i - 1))
}

// fn reads the i-th function.
func (t *table) fn(i uint64) (fn, bool) {
	off, ok1 := t.u32(t.funcs + i*8 + 4)
	next, ok2 := t.entry(i + 1)
	at := t.funcs + uint64(off)
	if !ok1 || !ok2 || at >= t.size || t.size-at < funcHeader {
		return fn{}, false
	}
	var b [funcHeader]byte
	if !t.mem.read(t.addr+at, b[:]) {
		return fn{}, false
	}
	return fn{addr: at, entry: t.text + uint64(u32(b[:])), end: t.text + uint64(next), name: u32(b[4:]), pcfile: u32(b[20:]), pcln: u32(b[24:]),
		npcdata: u32(b[28:]), cu: u32(b[32:]), startLine: u32(b[36:]), nfuncdata: uint32(b[43])}, true
}

// pcdata and funcdata give a function's word of one kind: where its table
// starts. The arrays follow the function's fixed part.
func (t *table) pcdata(f fn, kind uint32) uint32 {
	if kind >= f.npcdata {
		return 0
	}
	v, _ := t.u32(f.addr + funcHeader + uint64(kind)*4)
	return v
}

func (t *table) funcdata(f fn, kind uint32) (uint32, bool) {
	if kind >= f.nfuncdata {
		return 0, false
	}
	v, ok := t.u32(f.addr + funcHeader + (uint64(f.npcdata)+uint64(kind))*4)
	return v, ok && v != ^uint32(0)
}

// pcvalue is the value a pc-value table has at pc, −1 where it has none. The
// table is pairs of a zigzag delta of the value and a delta of the address.
func (t *table) pcvalue(tab uint32, entry, pc uint64) int32 {
	at := t.pctab + uint64(tab)
	if tab == 0 || at >= t.funcs && t.funcs > t.pctab {
		return -1
	}
	val, cur := int32(-1), entry
	for first := true; t.steps > 0; first = false {
		t.steps--
		d, ok := t.varint(&at)
		if !ok || d == 0 && !first {
			return -1
		}
		val += int32(-(d & 1) ^ (d >> 1))
		d, ok = t.varint(&at)
		if !ok {
			return -1
		}
		cur += uint64(d) * t.quantum
		if pc < cur {
			return val
		}
	}
	return -1
}

func (t *table) varint(at *uint64) (uint32, bool) {
	var v uint32
	var b [1]byte
	for shift := 0; shift < 35; shift += 7 {
		if *at >= t.size || !t.mem.read(t.addr+*at, b[:]) {
			return 0, false
		}
		*at++
		v |= uint32(b[0]&0x7f) << shift
		if b[0]&0x80 == 0 {
			return v, true
		}
	}
	return 0, false
}

// line finds the source position of an address of f.
func (t *table) line(f fn, pc uint64) (string, int) {
	file, line := t.pcvalue(f.pcfile, f.entry, pc), t.pcvalue(f.pcln, f.entry, pc)
	if file < 0 || line < 0 {
		return "", 0
	}
	off, ok := t.u32(t.cu + (uint64(f.cu)+uint64(file))*4)
	if !ok || off == ^uint32(0) {
		return "", 0
	}
	return t.str(t.files + uint64(off)), int(line)
}

// funcName reads a name as the runtime prints it: the shapes of a generic
// function are left out (src/runtime/traceback.go, funcNameForPrint).
func (t *table) funcName(off uint32) string {
	if off == 0 {
		return ""
	}
	name := t.str(t.names + uint64(off))
	if i, j := strings.IndexByte(name, '['), strings.LastIndexByte(name, ']'); i >= 0 && j > i {
		name = name[:i] + "[...]" + name[j+1:]
	}
	return name
}

func (t *table) str(off uint64) string {
	if off >= t.size {
		return ""
	}
	return readString(t.mem, t.addr+off, t.addr+t.size)
}
