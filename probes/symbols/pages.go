package symbols

import (
	"encoding/binary"
	"io"
	"strings"
)

// Limits of the page cache; together at most 2 MiB of each file.
const (
	pageSize = 4096
	maxPages = 512
)

// memory is something with addresses that can be read. Reads outside of it, or
// failing, are false and leave buf undefined.
type memory interface {
	read(addr uint64, buf []byte) bool
}

// pages reads a file by pages and keeps the last ones, as lookups come back to
// the same few parts of large tables.
type pages struct {
	r    io.ReaderAt
	size uint64
	kept map[uint64][]byte
}

func newPages(r io.ReaderAt, size int64) *pages {
	return &pages{r: r, size: uint64(max(size, 0)), kept: map[uint64][]byte{}}
}

// read copies the bytes at the file offset off.
func (p *pages) read(off uint64, buf []byte) bool {
	n := uint64(len(buf))
	if off > p.size || n > p.size-off {
		return false
	}
	if n > 2*pageSize {
		_, err := p.r.ReadAt(buf, int64(off))
		return err == nil
	}
	for len(buf) > 0 {
		page, ok := p.page(off / pageSize)
		at := off % pageSize
		if !ok || at >= uint64(len(page)) {
			return false
		}
		c := copy(buf, page[at:])
		buf, off = buf[c:], off+uint64(c)
	}
	return true
}

func (p *pages) page(i uint64) ([]byte, bool) {
	if page, ok := p.kept[i]; ok {
		return page, true
	}
	page := make([]byte, min(pageSize, p.size-i*pageSize))
	if _, err := p.r.ReadAt(page, int64(i*pageSize)); err != nil {
		return nil, false
	}
	if len(p.kept) >= maxPages {
		clear(p.kept)
	}
	p.kept[i] = page
	return page, true
}

func u32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
func u64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

func putU64(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }

// readU32 reads one 32-bit word.
func readU32(m memory, addr uint64) (uint32, bool) {
	var b [4]byte
	ok := m.read(addr, b[:])
	return u32(b[:]), ok
}

// maxString is the longest name read. Names of generic functions are long, but
// not that long.
const maxString = 8192

// readString reads up to the next zero byte before end; "" when there is none
// within the limit.
func readString(m memory, addr, end uint64) string {
	var out []byte
	var buf [128]byte
	for len(out) < maxString && addr < end {
		// A read must not cross the end of what is there.
		b := buf[:min(uint64(len(buf)), end-addr)]
		for !m.read(addr, b) {
			if len(b) == 1 {
				return ""
			}
			b = b[:len(b)/2]
		}
		for i, c := range b {
			if c == 0 {
				return strings.ToValidUTF8(string(append(out, b[:i]...)), "\uFFFD")
			}
		}
		out = append(out, b...)
		addr += uint64(len(b))
	}
	return ""
}
