package symbols

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rpcprof/toolkit/rpcprof/profile"
)

const unknown = "[unknown]"

// maxCached bounds the frames kept; all go when it is reached.
const maxCached = 65536

// remapInterval is the least time between two readings of the mappings, which
// an address outside of all known ones asks for.
const remapInterval = time.Second

// Process resolves addresses of one process. It is safe for concurrent use. It
// stays with the program the process ran when it was opened: after an exec it
// has to be opened again.
type Process struct {
	version string

	mu      sync.Mutex
	proc    int // the directory of the process: it cannot come to mean another one
	mem     *os.File
	main    *image
	maps    []mapping
	mapped  time.Time
	images  map[mapping]*image
	cache   map[key][]profile.Frame
	reasons []string
	asked   bool // for reasons
	closed  bool
}

type key struct {
	pc    uint64
	exact bool
}

// Open reads what is needed to resolve addresses of a process. It takes the
// permission to trace the process (ptrace(2), PTRACE_MODE_READ).
func Open(pid int) (*Process, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("symbols: %w", &os.PathError{Op: "open", Path: dir, Err: err})
	}
	p := &Process{proc: fd, images: map[mapping]*image{}, cache: map[key][]profile.Frame{}}
	if err := p.open(); err != nil {
		_ = p.Close() // nothing was written
		return nil, fmt.Errorf("symbols: process %d: %w", pid, err)
	}
	return p, nil
}

func (p *Process) open() error {
	// The link leads to the file itself, also when its path does not any more.
	exe, err := p.openat("exe")
	if err != nil {
		return err
	}
	if p.main, err = newImage(exe); err != nil {
		exe.Close()
		return err
	}
	// Reading memory takes more permission than the rest and is needed for few
	// files only.
	p.mem, _ = p.openat("mem")
	if err := p.remap(); err != nil {
		return err
	}
	bias, err := p.mainBias()
	if err != nil {
		return err
	}
	p.main.load(bias, p.live())
	p.version = goVersion(p.main.elf)
	return nil
}

func (p *Process) openat(name string) (*os.File, error) {
	fd, err := unix.Openat(p.proc, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Frames gives the calls at an address, innermost first, at least one. Inlined
// calls have frames of their own. An address that is not exact is a return
// address: what is looked up is the call before it. The result must not be
// changed.
func (p *Process) Frames(pc uint64, exact bool) []profile.Frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	if out, ok := p.cache[key{pc, exact}]; ok {
		return out
	}
	at := pc
	if !exact && at > 0 {
		at--
	}
	out := slices.Clip(p.resolve(at))
	if len(p.cache) >= maxCached {
		clear(p.cache)
	}
	p.cache[key{pc, exact}] = out
	return out
}

func (p *Process) resolve(pc uint64) []profile.Frame {
	if p.closed {
		return []profile.Frame{{Func: unknown}}
	}
	if e := p.main.elf; pc-p.main.bias >= e.low && pc-p.main.bias < e.hi {
		if out := p.main.frames(pc); out != nil {
			return out
		}
	}
	m, ok := p.mapping(pc)
	if !ok && pc < 1<<63 && time.Since(p.mapped) > remapInterval {
		_ = p.remap() // the process may be gone, the old mappings are still good
		m, ok = p.mapping(pc)
	}
	if !ok {
		return []profile.Frame{{Func: unknown}}
	}
	name := strings.ToValidUTF8(strings.Trim(m.name[strings.LastIndexByte(m.name, '/')+1:], "[]"), "\uFFFD")
	if i := p.image(m); i != nil {
		if out := i.frames(pc); out != nil {
			for k := range out {
				out[k].Module = name
			}
			return out
		}
	}
	// The mapping's name is better than nothing: [vdso] or [libc.so.6].
	if name == "" {
		return []profile.Frame{{Func: unknown}}
	}
	return []profile.Frame{{Func: "[" + name + "]", Module: name}}
}

func (p *Process) mapping(pc uint64) (mapping, bool) {
	for _, m := range p.maps {
		if pc >= m.lo && pc < m.hi {
			return m, true
		}
	}
	return mapping{}, false
}

// image opens the file behind a mapping, nil when it has no symbols for us.
func (p *Process) image(m mapping) *image {
	if i, ok := p.images[m]; ok || len(p.images) >= maxImages {
		return i
	}
	p.images[m] = nil
	file := openMapped(p.proc, m)
	if file == nil {
		return nil
	}
	i, err := newImage(file)
	if err != nil {
		file.Close()
		return nil
	}
	bias, ok := m.bias(i.elf)
	if !ok {
		file.Close()
		return nil
	}
	i.load(bias, p.live())
	p.images[m] = i
	return i
}

// GoVersion is the toolchain's version such as "go1.26.8", "" when the
// executable is no Go binary.
func (p *Process) GoVersion() string { return p.version }

// WaitReason is the runtime's text for a goroutine's wait reason, "" when it
// is not known.
func (p *Process) WaitReason(n uint8) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked && !p.closed {
		p.asked, p.reasons = true, nil
		if p.version != "" {
			p.reasons = waitReasons(p.main.elf, p.version)
		}
	}
	if int(n) < len(p.reasons) {
		return p.reasons[n]
	}
	return ""
}

// live is the process's memory, nil when it may not be read.
func (p *Process) live() memory {
	if p.mem == nil {
		return nil
	}
	return liveMemory{p.mem}
}

// Close lets go of the process and its files.
func (p *Process) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	errs := []error{unix.Close(p.proc)}
	if p.mem != nil {
		errs = append(errs, p.mem.Close())
	}
	if p.main != nil {
		errs = append(errs, p.main.file.Close())
	}
	for _, i := range p.images {
		if i != nil {
			errs = append(errs, i.file.Close())
		}
	}
	return errors.Join(errs...)
}
