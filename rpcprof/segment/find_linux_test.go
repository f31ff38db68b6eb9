package segment

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

func closeAll(fs []*File) {
	for _, f := range fs {
		_ = f.Close()
	}
}

// find gives the segment of that service in this process, nil when there is none.
func find(t *testing.T, service string) *File {
	t.Helper()
	fs, err := Find(os.Getpid())
	if err != nil && !errors.Is(err, ErrNotSegment) {
		t.Fatal(err)
	}
	var mine *File
	for _, f := range fs {
		if h := f.Header(); h.ServiceString() == service {
			if mine != nil {
				t.Error("one segment was found twice")
			}
			mine = f
			continue
		}
		_ = f.Close()
	}
	if mine != nil {
		t.Cleanup(func() { _ = mine.Close() })
	}
	return mine
}

func TestFindOwn(t *testing.T) {
	w, err := NewWriter(Options{Service: t.Name(), Shards: 1, Ring: 8})
	if err != nil {
		t.Skip("no memfd here: ", err)
	}
	defer w.Unmap()
	f := find(t, t.Name())
	if f == nil {
		t.Fatal("the segment was not found")
	}
	if again := find(t, t.Name()); again != nil { // f is a second descriptor of the same file
		_ = again.Close()
	}
	put(&w.Shards[0], sample(3))
	if recs, err := f.Records(nil); err != nil || len(recs) != 1 {
		t.Errorf("%d records, %v", len(recs), err)
	}
	w.Close()
	put(&w.Shards[0], sample(4)) // the mapping stays
	if recs, err := f.Records(nil); err != nil || len(recs) != 1 {
		t.Errorf("after Close %d records, %v", len(recs), err)
	}
	_ = f.Close()
	if find(t, t.Name()) != nil {
		t.Error("a closed segment was found")
	}
}

func TestFindNoProcess(t *testing.T) {
	for _, pid := range []int{math.MaxInt32, 0, -1} {
		if fs, err := Find(pid); !errors.Is(err, ErrNoProcess) || len(fs) != 0 {
			t.Errorf("process %d: %v, %v", pid, fs, err)
		}
	}
}

func TestFindNone(t *testing.T) {
	c := exec.Command("cat") // waits for its input
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Skip(err)
	}
	defer func() { _ = in.Close(); _ = c.Wait() }()
	if fs, err := Find(c.Process.Pid); err != nil || len(fs) != 0 {
		t.Errorf("%v, %v", fs, err)
	}
}

func TestFindUnsealed(t *testing.T) {
	fd, err := unix.MemfdCreate(FileName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(fd)
	fs, err := Find(os.Getpid())
	closeAll(fs)
	if !errors.Is(err, ErrNotSegment) {
		t.Errorf("a file that could still shrink: %v", err)
	}
}
