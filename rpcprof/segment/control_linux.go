package segment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ControlWriter is the library's side of a control file.
type ControlWriter struct {
	*Control
	mem []byte
	fd  int
}

// NewControl makes a control file.
func NewControl(seq uint32) (*ControlWriter, error) {
	mem, fd, err := memfd(ControlName, ControlSize)
	if err != nil {
		return nil, fmt.Errorf("control file: %w", err)
	}
	w := &ControlWriter{Control: (*Control)(unsafe.Pointer(&mem[0])), mem: mem, fd: fd}
	w.Version, w.PID, w.Seq = ControlVersion, uint32(os.Getpid()), seq
	atomic.StoreUint64(&w.Magic, ControlMagic)
	return w, nil
}

// Close takes the file away.
func (w *ControlWriter) Close() {
	_ = unix.Munmap(w.mem)
	_ = unix.Close(w.fd)
}

// NewTraceFile makes the file in which a trace comes back.
func NewTraceFile() (*os.File, error) {
	fd, err := unix.MemfdCreate(TraceName, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("trace file: %w", err)
	}
	return os.NewFile(uintptr(fd), TraceName), nil
}

// Errors of a request.
var (
	// ErrNoControl: the process takes no requests, or those of that profiler.
	ErrNoControl = errors.New("the process takes no requests")
	// ErrDeclined: it answered that it will not or could not.
	ErrDeclined = errors.New("the process declines")
)

// The parts of the file that are written from outside.
var (
	askAt  = int64(unsafe.Offsetof(Control{}.ID))
	kindAt = int64(unsafe.Offsetof(Control{}.Kind))
)

// Ask makes a request of a profiler of another process, waits for its answer, and
// gives it. The library looks once a second; a trace takes its length longer.
func Ask(ctx context.Context, pid int, seq, kind, arg uint32) (Control, error) {
	var c Control
	f, err := openControl(pid, seq)
	if err != nil {
		return c, err
	}
	defer f.Close()
	// One who asks at a time; the lock ends with the file.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return c, fmt.Errorf("process %d: %w: another request is under way", pid, ErrDeclined)
	}
	id := uint64(time.Now().UnixNano())
	ask := struct{ kind, arg uint32 }{kind, arg}
	if err = write(f, kindAt, &ask); err == nil {
		err = write(f, askAt, &id)
	}
	if err != nil {
		return c, fmt.Errorf("process %d: request: %w", pid, err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := readInto(f, 0, &c); err != nil {
			return c, err
		}
		sanitize(c.Message[:])
		if c.Answer == id && c.Status != StatusRunning {
			break
		}
		select {
		case <-ctx.Done():
			return c, fmt.Errorf("process %d: no answer: %w", pid, ctx.Err())
		case <-tick.C:
		}
	}
	if c.Status != StatusDone {
		return c, fmt.Errorf("process %d: %w: %s", pid, ErrDeclined, c.MessageString())
	}
	return c, nil
}

func write[T any](f *os.File, at int64, v *T) error {
	b := unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
	_, err := f.WriteAt(b, at)
	return err
}

// openControl opens the control file of one profiler.
func openControl(pid int, seq uint32) (*os.File, error) {
	var found *os.File
	err := memfds(pid, ControlName, func(path string) error {
		if found != nil {
			return nil
		}
		f, size, err := openMemfd(path, os.O_RDWR, map[inode]bool{}, true)
		if err != nil || f == nil {
			return err
		}
		var c Control
		if size == ControlSize && readInto(f, 0, &c) == nil && c.Magic == ControlMagic && c.Version == ControlVersion && c.Seq == seq {
			found = f
			return nil
		}
		return f.Close()
	})
	switch {
	case found != nil:
		return found, nil
	case err != nil:
		return nil, err
	}
	return nil, fmt.Errorf("process %d: %w", pid, ErrNoControl)
}

// ReadTrace gives the trace that an answer speaks of.
func ReadTrace(pid int, c Control) ([]byte, error) {
	if c.Bytes > MaxTraceBytes {
		return nil, fmt.Errorf("%w: a trace of %d bytes", ErrCorrupt, c.Bytes)
	}
	var out []byte
	err := memfds(pid, TraceName, func(path string) error {
		f, size, err := openMemfd(path, os.O_RDONLY, map[inode]bool{}, false)
		if err != nil || f == nil {
			return err
		}
		defer f.Close()
		if uint64(size) == c.Bytes && out == nil {
			b := make([]byte, size)
			if _, err := io.ReadFull(io.NewSectionReader(f, 0, size), b); err != nil {
				return fmt.Errorf("trace: %w", err)
			}
			out = b
		}
		return nil
	})
	if out == nil && err == nil {
		err = fmt.Errorf("process %d: the trace is gone", pid)
	}
	return out, err
}
