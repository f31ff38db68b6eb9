package segment

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// patience bounds every wait; nothing is measured by it.
const patience = 30 * time.Second

func controlFile(t *testing.T, seq uint32) *ControlWriter {
	t.Helper()
	w, err := NewControl(seq)
	if err != nil {
		t.Skip("no memfd here: ", err)
	}
	t.Cleanup(w.Close)
	return w
}

// answer plays the library: it answers the next request with f.
func (w *ControlWriter) answer(t *testing.T, f func(c *Control)) {
	t.Helper()
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if id := atomic.LoadUint64(&w.ID); id != w.Answer {
				f(w.Control)
				atomic.StoreUint64(&w.Answer, id)
				return
			}
		}
	}()
}

func TestAsk(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	hostile := "no\x1b[2J\xff\u202e\r\n"
	for i, tt := range []struct {
		status uint32
		want   error
	}{{StatusDone, nil}, {StatusRefused, ErrDeclined}, {StatusFailed, ErrDeclined}, {StatusNone, ErrDeclined}, {99, ErrDeclined}} {
		seq := uint32(0xfff0 + i) // no profiler's
		w := controlFile(t, seq)
		w.answer(t, func(c *Control) {
			for k := range c.Message { // not even a zero at its end
				c.Message[k] = hostile[k%len(hostile)]
			}
			c.Status, c.Bytes = tt.status, 5
		})
		c, err := Ask(ctx, os.Getpid(), seq, RequestTrace, 77)
		if !errors.Is(err, tt.want) || err == nil && c.Bytes != 5 {
			t.Errorf("status %d: %+v, %v", tt.status, c, err)
		}
		if w.Kind != RequestTrace || w.Arg != 77 {
			t.Errorf("kind %d and argument %d were asked", w.Kind, w.Arg)
		}
		text := c.MessageString()
		if err != nil {
			text += err.Error()
		}
		for _, r := range text {
			if !unicode.IsPrint(r) {
				t.Errorf("status %d: text %q", tt.status, text)
				break
			}
		}
	}
}

// Who gets no answer stops when its context does.
func TestAskUnanswered(t *testing.T) {
	controlFile(t, 0xffe0)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := Ask(ctx, os.Getpid(), 0xffe0, RequestTrace, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// memfile makes a memfd of that name with seals.
func memfile(t *testing.T, name string, size int64, content []byte, seals int) {
	t.Helper()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Skip(err)
	}
	f := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { _ = f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Skip(err)
	}
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
}

// Nothing is written into a file that is no control file.
func TestNoControl(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := Ask(ctx, os.Getpid(), 0xffd0, RequestTrace, 1); !errors.Is(err, ErrNoControl) {
		t.Errorf("none: %v", err)
	}
	if _, err := Ask(ctx, 1<<30, 1, RequestTrace, 1); !errors.Is(err, ErrNoProcess) {
		t.Errorf("no process: %v", err)
	}
	w := controlFile(t, 0xffd1)
	for what, edit := range map[string]func(*Control){
		"magic":   func(c *Control) { c.Magic++ },
		"version": func(c *Control) { c.Version++ },
		"seq":     func(c *Control) { c.Seq++ },
	} {
		was := *w.Control
		edit(w.Control)
		if _, err := Ask(ctx, os.Getpid(), 0xffd1, RequestTrace, 1); !errors.Is(err, ErrNoControl) || w.ID != 0 {
			t.Errorf("%s: %v", what, err)
		}
		*w.Control = was
	}
	memfile(t, ControlName, 2*ControlSize, w.mem, Seals) // of another size
	memfile(t, ControlName, ControlSize, nil, Seals)     // empty
	if _, err := Ask(ctx, os.Getpid(), 0xffd2, RequestTrace, 1); !errors.Is(err, ErrNoControl) {
		t.Errorf("wrong files: %v", err)
	}
	memfile(t, ControlName, ControlSize, nil, unix.F_SEAL_GROW) // could shrink
	if _, err := Ask(ctx, os.Getpid(), 0xffd2, RequestTrace, 1); !errors.Is(err, ErrNotSegment) {
		t.Errorf("not sealed: %v", err)
	}
}

// A trace is read only if it is as long as the answer says and within the bound; one
// that claims 10 GB costs nothing.
func TestReadTrace(t *testing.T) {
	const huge = 10 << 30
	memfile(t, TraceName, huge, nil, 0)
	memfile(t, TraceName, MaxTraceBytes+1, nil, 0)
	memfile(t, TraceName, 5, []byte("trace"), 0)
	got := allocated(func() {
		for _, n := range []uint64{huge, MaxTraceBytes + 1, 1<<64 - 1} {
			if _, err := ReadTrace(os.Getpid(), Control{Bytes: n}); !errors.Is(err, ErrCorrupt) {
				t.Errorf("a trace of %d bytes: %v", n, err)
			}
		}
		if b, err := ReadTrace(os.Getpid(), Control{Bytes: 5}); string(b) != "trace" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		if _, err := ReadTrace(os.Getpid(), Control{Bytes: 6}); err == nil || !strings.Contains(err.Error(), "gone") {
			t.Errorf("a trace that is not there: %v", err)
		}
	})
	if got > 1<<20 {
		t.Errorf("%d bytes were allocated", got)
	}
}

// A file that is a segment in all but its seals is refused: it could shrink while it
// is mapped or read.
func TestFindHalfSealed(t *testing.T) {
	content, _ := make2(t, false)
	for _, seals := range []int{0, unix.F_SEAL_GROW | unix.F_SEAL_SEAL, unix.F_SEAL_SHRINK | unix.F_SEAL_GROW} {
		t.Run("", func(t *testing.T) {
			memfile(t, FileName, int64(len(content)), content, seals)
			fs, err := Find(os.Getpid())
			closeAll(fs)
			if !errors.Is(err, ErrNotSegment) {
				t.Errorf("seals %#x: %v", seals, err)
			}
			for _, f := range fs {
				if h := f.Header(); h.PID == 4711 {
					t.Errorf("seals %#x: it was taken", seals)
				}
			}
		})
	}
}
