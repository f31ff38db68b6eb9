package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Errors of Find.
var (
	// ErrNoProcess: there is no such process.
	ErrNoProcess = errors.New("no such process")
	// ErrRefused: the kernel refuses to show the process's files.
	ErrRefused = errors.New("not permitted to look into the process")
)

// File is an open segment of another process. It stays readable after that
// process has ended.
type File struct {
	*Reader
	f *os.File
}

// Close closes the file; the segment itself lives as long as its writer.
func (f *File) Close() error { return f.f.Close() }

// Find opens every segment of a process, through /proc/PID/fd. A file that
// bears the name but is none, or cannot be read, is reported beside those that
// can; each segment is opened once, however many descriptors lead to it.
func Find(pid int) ([]*File, error) {
	var out []*File
	seen := map[inode]bool{}
	err := memfds(pid, FileName, func(path string) error {
		f, size, err := openMemfd(path, os.O_RDONLY, seen, true)
		if err != nil || f == nil {
			return err
		}
		r, err := NewReader(f, size)
		if err != nil {
			_ = f.Close()
			return err
		}
		out = append(out, &File{Reader: r, f: f})
		return nil
	})
	return out, err
}

// memfds calls f with the path of each descriptor of a process that leads to a
// memfd of that name. What f returns is joined, but for files closed meanwhile.
func memfds(pid int, name string, f func(path string) error) error {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return fmt.Errorf("process %d: %w", pid, ErrNoProcess)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("process %d: %w", pid, ErrRefused)
	case err != nil:
		return fmt.Errorf("process %d: %w", pid, err)
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		link, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(link, "/memfd:"+name+" ") {
			continue
		}
		if err := f(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

type inode struct{ dev, ino uint64 }

// openMemfd opens a memfd of another process, whose size must be sealed where that
// is asked for. It gives nil for one that was seen before.
func openMemfd(path string, mode int, seen map[inode]bool, sealed bool) (*os.File, int64, error) {
	// O_PATH first: opening a FIFO or a device would block or act.
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, refused(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, 0, fmt.Errorf("segment: %w", err)
	}
	id := inode{uint64(st.Dev), st.Ino}
	if seen[id] {
		return nil, 0, nil
	}
	seen[id] = true
	var sf unix.Statfs_t
	if err := unix.Fstatfs(fd, &sf); err != nil {
		return nil, 0, fmt.Errorf("segment: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 0 || sf.Type != unix.TMPFS_MAGIC {
		return nil, 0, fmt.Errorf("%w: not an unlinked tmpfs file", ErrNotSegment)
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), mode, 0)
	if err != nil {
		return nil, 0, refused(err)
	}
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if sealed && (err != nil || seals&Seals != Seals) {
		_ = f.Close()
		return nil, 0, fmt.Errorf("%w: its size is not sealed", ErrNotSegment)
	}
	return f, st.Size, nil
}

// refused makes the kernel's refusal one of this package's errors.
func refused(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("segment: %w: %w", ErrRefused, err)
	}
	return fmt.Errorf("segment: %w", err)
}
