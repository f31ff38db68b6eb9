package symbols

import "encoding/binary"

// goImage finds the Go function table of a file; nil when there is none that
// can be read.
func goImage(f *elfFile, live memory, bias uint64) *table {
	t := findTable(f)
	if t == nil {
		return nil
	}
	if (modules{f, live, bias}).locate(t) {
		return t
	}
	// Without moduledata there are no inline trees, and the text start is one
	// of these, best first. With cgo the .text section starts with C code.
	if s, ok := lookup(f, "runtime.text"); ok {
		t.text = s.addr
	} else if t.textStart != 0 {
		t.text = t.textStart
	} else if s, ok := f.section(".text"); ok {
		t.text = s.addr
	}
	if t.text == 0 {
		return nil
	}
	return t
}

// findTable finds the table by its section, then by its magic number.
func findTable(f *elfFile) *table {
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if s, ok := f.section(name); ok {
			if t, ok := parseTable(f, s.addr, s.size); ok {
				return t
			}
		}
	}
	var t *table
	// With an external linker the table can be in a segment that is writable
	// until it has been relocated.
	for _, s := range append(f.spans(false), f.spans(true)...) {
		if scan(f, s, func(addr uint64, b []byte) bool {
			if u32(b) != pclnMagic {
				return false
			}
			got, ok := parseTable(f, addr, s.addr+s.size-addr)
			if ok {
				t = got
			}
			return ok
		}) {
			break
		}
	}
	return t
}

// goVersion reads the version of the toolchain from the build information
// (src/debug/buildinfo: inline strings since Go 1.18), "" when there is none.
func goVersion(f *elfFile) string {
	const magic = "\xff Go buildinf:"
	read := func(addr uint64) string {
		var h [33 + binary.MaxVarintLen64]byte
		if !f.read(addr, h[:]) || string(h[:len(magic)]) != magic || h[15]&2 == 0 {
			return ""
		}
		n, k := binary.Uvarint(h[32:])
		if k <= 0 || n == 0 || n > 256 {
			return ""
		}
		v := make([]byte, n)
		if !f.read(addr+32+uint64(k), v) {
			return ""
		}
		for _, c := range v {
			if c < ' ' || c > '~' {
				return ""
			}
		}
		return string(v)
	}
	if s, ok := f.section(".go.buildinfo"); ok {
		return read(s.addr)
	}
	version := ""
	for _, s := range f.spans(true) {
		scan(f, span{s.addr, min(s.size, 1<<20)}, func(addr uint64, b []byte) bool {
			if string(b[:8]) == magic[:8] {
				version = read(addr)
			}
			return version != ""
		})
	}
	return version
}
