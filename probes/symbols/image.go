package symbols

import (
	"os"

	"github.com/ianlancetaylor/demangle"

	"github.com/rpcprof/toolkit/rpcprof/profile"
)

// image is one file the process runs code of.
type image struct {
	file *os.File
	elf  *elfFile
	bias uint64
	gos  *table
	syms *symtab
}

func newImage(file *os.File) (*image, error) {
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	f, err := parseELF(file, st.Size())
	if err != nil {
		return nil, err
	}
	return &image{file: file, elf: f}, nil
}

func (i *image) load(bias uint64, live memory) {
	i.bias, i.gos = bias, goImage(i.elf, live, bias)
}

// frames resolves an address, nil when the image does not know it.
func (i *image) frames(pc uint64) []profile.Frame {
	pc -= i.bias
	if i.gos != nil {
		if out := i.gos.frames(pc); out != nil {
			return out
		}
	}
	if i.syms == nil {
		i.syms = readSymtab(i.elf)
	}
	if name := i.syms.find(pc); name != "" {
		return []profile.Frame{{Func: readable(name)}}
	}
	return nil
}

// maxReadable bounds a demangled name: a mangled one can stand for one that is
// exponentially longer.
const maxReadable = 10 // as a power of two

// readable is the name as it stands in the source: of C++ and Rust without its
// parameters, any other as it is.
func readable(name string) string {
	return demangle.Filter(name, demangle.NoParams, demangle.NoEnclosingParams, demangle.NoTemplateParams, demangle.MaxLength(maxReadable))
}

// liveMemory is the memory of the process, by its real addresses.
type liveMemory struct{ f *os.File }

func (l liveMemory) read(addr uint64, buf []byte) bool {
	if addr >= 1<<63 {
		return false
	}
	n, err := l.f.ReadAt(buf, int64(addr))
	return err == nil && n == len(buf)
}
