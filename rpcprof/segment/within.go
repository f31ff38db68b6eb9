package segment

// ReadAt reads the segment within the process that writes it, while that goes on:
// what makes a Reader's copy whole is the order in which things are published.
func (w *Writer) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 || off >= int64(len(w.mem.mem)) {
		return 0, errOutside
	}
	n := copyShared(b, w.mem.mem[off:])
	if n < len(b) {
		return n, errOutside
	}
	return n, nil
}

// Size is the segment's size in bytes.
func (w *Writer) Size() int64 { return int64(len(w.mem.mem)) }
