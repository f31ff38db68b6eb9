package symbols

import (
	"bufio"
	"debug/elf"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits on what is read about mappings.
const (
	maxMapBytes = 16 << 20
	maxMappings = 65536
	maxImages   = 64
)

// mapping is one executable mapping of the process, see proc_pid_maps(5).
type mapping struct {
	lo, hi, off uint64
	inode       uint64
	name        string
}

// readMaps reads the executable mappings, in the order of their addresses.
func readMaps(r io.Reader) []mapping {
	var out []mapping
	sc := bufio.NewScanner(io.LimitReader(r, maxMapBytes))
	sc.Buffer(nil, 64<<10)
	for sc.Scan() && len(out) < maxMappings {
		// lo-hi perms offset dev inode path; a path can have spaces.
		line := sc.Text()
		var f [5]string
		for i := range f {
			f[i], line, _ = strings.Cut(strings.TrimLeft(line, " "), " ")
		}
		lo, hi, ok := strings.Cut(f[0], "-")
		if !ok || len(f[1]) < 3 || f[1][2] != 'x' {
			continue
		}
		var m mapping
		var errs [4]error
		m.lo, errs[0] = strconv.ParseUint(lo, 16, 64)
		m.hi, errs[1] = strconv.ParseUint(hi, 16, 64)
		m.off, errs[2] = strconv.ParseUint(f[2], 16, 64)
		m.inode, errs[3] = strconv.ParseUint(f[4], 10, 64)
		if errs != [4]error{} || m.lo >= m.hi {
			continue
		}
		m.name = strings.TrimLeft(line, " ")
		out = append(out, m)
	}
	return out
}

// openMapped opens the file behind a mapping: through map_files, which has it
// even when it was replaced but takes privileges, else by its path as the
// process sees it, if that is still the same file.
func openMapped(proc int, m mapping) *os.File {
	span := strconv.FormatUint(m.lo, 16) + "-" + strconv.FormatUint(m.hi, 16)
	for _, path := range []string{"map_files/" + span, "root" + m.name} {
		if !strings.HasPrefix(m.name, "/") || strings.Contains(m.name, "\x00") {
			return nil
		}
		// Not blocking, as the path can have become a pipe meanwhile.
		fd, err := unix.Openat(proc, path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Ino == m.inode {
			return os.NewFile(uintptr(fd), m.name)
		}
		unix.Close(fd)
	}
	return nil
}

// bias is what was added to the addresses of f where m maps it.
func (m mapping) bias(f *elfFile) (uint64, bool) {
	for _, s := range f.segs {
		if elf.ProgFlag(s.flags)&elf.PF_X == 0 {
			continue
		}
		// Mappings start at whole pages, segments need not. A mapping may have
		// been split.
		if m.off+pageSize > s.off && m.off < s.off+s.fileSize {
			return m.lo - m.off + s.off - s.addr, true
		}
	}
	return 0, false
}

// mainBias is where the kernel has put the executable: the entry point it told
// the process (getauxval(3), AT_ENTRY) less the one in the file. Where that
// cannot be read the mappings tell.
func (p *Process) mainBias() (uint64, error) {
	if f, err := p.openat("auxv"); err == nil {
		defer f.Close()
		b := make([]byte, 4096)
		n, _ := f.Read(b)
		for b = b[:n]; len(b) >= 16; b = b[16:] {
			const atEntry = 9
			if u64(b) == atEntry {
				return u64(b[8:]) - p.main.elf.entry, nil
			}
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(p.main.file.Fd()), &st); err != nil {
		return 0, err
	}
	for _, m := range p.maps {
		if m.inode == st.Ino {
			if bias, ok := m.bias(p.main.elf); ok {
				return bias, nil
			}
		}
	}
	return 0, errors.New("the executable is not mapped")
}

func (p *Process) remap() error {
	f, err := p.openat("maps")
	if err != nil {
		return err
	}
	defer f.Close()
	p.maps, p.mapped = readMaps(f), time.Now()
	return nil
}
