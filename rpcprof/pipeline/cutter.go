package pipeline

import "io"

// readSize is how much one read may take.
const readSize = 64 << 10

// cutter reads a connection and cuts frames from what it has read. The frames
// alias its buffer and are valid until the next read.
type cutter struct {
	base   []byte // the buffer of ordinary size, kept while a larger one serves
	buf    []byte
	start  int   // of what is not cut yet
	end    int   // of what was read
	offset int64 // of buf[start] in all that was received
	need   int   // bytes from start that the next frame is known to need
}

func newCutter() *cutter {
	b := make([]byte, readSize)
	return &cutter{base: b, buf: b}
}

// read takes whatever the connection has, in one read. Frames that were cut
// before are gone after it.
func (c *cutter) read(r io.Reader) error {
	c.makeRoom()
	for range 100 { // a reader may give nothing, but not for ever
		n, err := r.Read(c.buf[c.end:])
		c.end += n
		if n > 0 {
			return nil // an error that came with bytes comes again
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// makeRoom leaves room behind what is not cut yet. For a frame that is longer
// than the buffer it doubles the buffer at most: what a peer merely announces
// costs nothing.
func (c *cutter) makeRoom() {
	rest := c.buf[c.start:c.end]
	switch {
	case len(rest) == 0, len(c.buf) > len(c.base) && len(rest) < len(c.base) && c.need <= len(c.base):
		copy(c.base, rest)
		c.buf = c.base
	case c.start == 0 && c.end == len(c.buf):
		grown := make([]byte, min(2*len(c.buf), max(c.need, len(c.buf)+1)))
		copy(grown, rest)
		c.buf = grown
	case c.start > 0:
		copy(c.buf, rest)
	}
	c.start, c.end = 0, len(rest)
}

// cut gives the next complete frame; its size is 0 when there is none before
// another read.
func (c *cutter) cut(limit int) (frame, error) {
	f, need, err := parseFrame(c.buf[c.start:c.end], limit)
	if err != nil {
		return frame{}, err
	}
	c.need = need
	f.offset = c.offset
	c.start += f.size
	c.offset += int64(f.size)
	return f, nil
}

// broken says whether the peer stopped within a frame.
func (c *cutter) broken() bool { return c.end > c.start }
