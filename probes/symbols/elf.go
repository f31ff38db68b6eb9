package symbols

import (
	"debug/elf"
	"errors"
	"io"
)

// Limits on ELF headers. Go binaries have about fifty sections and a dozen
// segments.
const (
	maxSections = 4096
	maxSegments = 256
)

var errNotELF = errors.New("symbols: not a 64-bit little-endian ELF file")

// section and segment are headers without what is not used.
type section struct {
	name                        string
	typ, link                   uint32
	flags, addr, off, size, ent uint64
}

type segment struct {
	flags             uint32
	off, addr         uint64
	fileSize, memSize uint64
}

// elfFile is an ELF file read lazily. It has a reader of its own because
// debug/elf decompresses sections into memory without a limit, and it is a
// memory with the addresses before relocation.
type elfFile struct {
	*pages  // by file offset, see file
	machine elf.Machine
	entry   uint64
	secs    []section
	segs    []segment // PT_LOAD only
	low, hi uint64    // bounds of all segments
}

func parseELF(r io.ReaderAt, size int64) (*elfFile, error) {
	f := &elfFile{pages: newPages(r, size)}
	var h [64]byte
	if !f.file(0, h[:]) || string(h[:4]) != elf.ELFMAG ||
		elf.Class(h[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(h[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return nil, errNotELF
	}
	f.machine = elf.Machine(u32(h[16:]) >> 16)
	f.entry = u64(h[24:])
	phoff, shoff := u64(h[32:]), u64(h[40:])
	w := func(i int) uint64 { return uint64(h[i]) | uint64(h[i+1])<<8 }
	phentsize, phnum, shentsize, shnum, shstrndx := w(54), w(56), w(58), w(60), w(62)

	f.low = ^uint64(0)
	var b [64]byte
	for i := range min(phnum, maxSegments) {
		if phentsize < 56 || !f.file(phoff+i*phentsize, b[:56]) {
			break
		}
		s := segment{u32(b[4:]), u64(b[8:]), u64(b[16:]), u64(b[32:]), u64(b[40:])}
		if elf.ProgType(u32(b[:])) != elf.PT_LOAD || s.addr+max(s.memSize, s.fileSize) < s.addr {
			continue
		}
		f.segs = append(f.segs, s)
		f.low, f.hi = min(f.low, s.addr), max(f.hi, s.addr+s.memSize)
	}
	if len(f.segs) == 0 {
		return nil, errNotELF
	}
	var names []uint32
	for i := range min(shnum, maxSections) {
		if shentsize < 64 || !f.file(shoff+i*shentsize, b[:]) {
			break
		}
		names = append(names, u32(b[:]))
		f.secs = append(f.secs, section{typ: u32(b[4:]), flags: u64(b[8:]), addr: u64(b[16:]), off: u64(b[24:]),
			size: u64(b[32:]), link: u32(b[40:]), ent: u64(b[56:])})
	}
	if shstrndx < uint64(len(f.secs)) {
		str := f.secs[shstrndx]
		for i := range f.secs {
			f.secs[i].name = readString(fileView{f}, str.off+uint64(names[i]), str.off+str.size)
		}
	}
	return f, nil
}

// file reads by file offset.
func (f *elfFile) file(off uint64, buf []byte) bool { return f.pages.read(off, buf) }

// read reads by address, from the file's part of the segments.
func (f *elfFile) read(addr uint64, buf []byte) bool {
	n := uint64(len(buf))
	for _, s := range f.segs {
		if addr >= s.addr && addr-s.addr <= s.fileSize && n <= s.fileSize-(addr-s.addr) {
			return f.file(s.off+(addr-s.addr), buf)
		}
	}
	return false
}

// fileView is the file as a memory with file offsets for addresses.
type fileView struct{ f *elfFile }

func (v fileView) read(addr uint64, buf []byte) bool { return v.f.file(addr, buf) }

// section finds an allocated section with content by its name.
func (f *elfFile) section(name string) (section, bool) {
	for _, s := range f.secs {
		if s.name == name && elf.SectionType(s.typ) != elf.SHT_NOBITS && s.size > 0 {
			return s, true
		}
	}
	return section{}, false
}

// span is a range of addresses.
type span struct{ addr, size uint64 }

// spans gives the loaded segments with or without the right to write, up to
// maxScan bytes in all.
func (f *elfFile) spans(writable bool) []span {
	var out []span
	left := uint64(maxScan)
	for _, s := range f.segs {
		if (elf.ProgFlag(s.flags)&elf.PF_W != 0) == writable {
			size := min(s.fileSize, left)
			left -= size
			out = append(out, span{s.addr, size})
		}
	}
	return out
}

// maxScan bounds a search through a file.
const maxScan = 512 << 20

// scan calls visit for each position that is a multiple of 8 with the eight
// bytes or more from there, until visit returns true.
func scan(m memory, s span, visit func(addr uint64, b []byte) bool) bool {
	const chunk = 256 << 10
	buf := make([]byte, chunk)
	addr := (s.addr + 7) &^ 7
	end := s.addr + min(s.size, maxScan)
	for addr < end && end-addr >= 8 {
		b := buf[:min(chunk, (end-addr)&^7)]
		if !m.read(addr, b) {
			return false
		}
		for i := 0; i+8 <= len(b); i += 8 {
			if visit(addr+uint64(i), b[i:]) {
				return true
			}
		}
		addr += uint64(len(b))
	}
	return false
}
