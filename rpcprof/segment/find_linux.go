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
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return nil, fmt.Errorf("process %d: %w", pid, ErrNoProcess)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("process %d: %w", pid, ErrRefused)
	case err != nil:
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	var out []*File
	var errs []error
	seen := map[inode]bool{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		link, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(link, "/memfd:"+FileName+" ") {
			continue
		}
		f, err := open(path, seen)
		switch {
		case errors.Is(err, fs.ErrNotExist): // closed meanwhile
		case err != nil:
			errs = append(errs, err)
		case f != nil:
			out = append(out, f)
		}
	}
	return out, errors.Join(errs...)
}

type inode struct{ dev, ino uint64 }

// open opens a segment; it gives nil for one that was seen before.
func open(path string, seen map[inode]bool) (*File, error) {
	// O_PATH first: opening a FIFO or a device would block or act.
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, refused(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("segment: %w", err)
	}
	id := inode{uint64(st.Dev), st.Ino}
	if seen[id] {
		return nil, nil
	}
	seen[id] = true
	var sf unix.Statfs_t
	if err := unix.Fstatfs(fd, &sf); err != nil {
		return nil, fmt.Errorf("segment: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 0 || sf.Type != unix.TMPFS_MAGIC {
		return nil, fmt.Errorf("%w: not an unlinked tmpfs file", ErrNotSegment)
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY, 0)
	if err != nil {
		return nil, refused(err)
	}
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&Seals != Seals {
		_ = f.Close()
		return nil, fmt.Errorf("%w: its size is not sealed", ErrNotSegment)
	}
	r, err := NewReader(f, st.Size)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &File{Reader: r, f: f}, nil
}

// refused makes the kernel's refusal one of this package's errors.
func refused(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("segment: %w: %w", ErrRefused, err)
	}
	return fmt.Errorf("segment: %w", err)
}
