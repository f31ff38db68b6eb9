package pipeline

import (
	"bytes"
	"testing"
)

// Whatever comes in: no panic, nothing beyond the input, and what is taken for a
// frame encodes to the bytes it was cut from.
func FuzzParseFrame(f *testing.F) {
	for _, fr := range []frame{
		{seq: 1, kind: kindRequest, name: []byte("a.A/B"), deadline: 5, payload: []byte("payload")},
		{seq: 1<<64 - 1, kind: kindReply},
		{seq: 3, kind: kindError, code: 9, payload: []byte("message")},
	} {
		b := appendFrame(nil, &fr)
		f.Add(b, 1<<20)
		f.Add(append(b, b...), len(b))
		f.Add(b[:len(b)-1], 1<<20)
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0}, 1<<30)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		limit = limitOf(limit)
		fr, need, err := parseFrame(b, limit)
		switch {
		case err != nil:
		case fr.size == 0:
			if need <= len(b) || need > limit+lengthSize {
				t.Fatalf("needs %d of %d bytes, limit %d", need, len(b), limit)
			}
		default:
			if fr.size > len(b) || fr.size > limit+lengthSize || fr.encodedSize() != fr.size {
				t.Fatalf("frame of %d bytes, encoded %d, in %d, limit %d", fr.size, fr.encodedSize(), len(b), limit)
			}
			if got := appendFrame(nil, &fr); !bytes.Equal(got, b[:fr.size]) {
				t.Fatalf("%x became %x", b[:fr.size], got)
			}
		}

		// The cutter gives the same frames however the bytes arrive.
		whole, pieces := cutAll(b, len(b), limit), cutAll(b, 3, limit)
		if len(whole) != len(pieces) {
			t.Fatalf("%d frames at once, %d in pieces", len(whole), len(pieces))
		}
		for i := range whole {
			if !bytes.Equal(whole[i], pieces[i]) {
				t.Fatalf("frame %d: %x at once, %x in pieces", i, whole[i], pieces[i])
			}
		}
	})
}

func cutAll(b []byte, piece, limit int) (out [][]byte) {
	c := &cutter{base: make([]byte, 16)}
	c.buf = c.base
	var offset int64
	for len(b) > 0 {
		r := bytes.NewReader(b[:min(piece, len(b))])
		for r.Len() > 0 {
			if c.read(r) != nil {
				return out
			}
			for {
				f, err := c.cut(limit)
				if err != nil {
					return out
				}
				if f.size == 0 {
					break
				}
				if f.offset != offset {
					panic("wrong offset")
				}
				offset += int64(f.size)
				out = append(out, appendFrame(nil, &f))
			}
		}
		b = b[min(piece, len(b)):]
	}
	return out
}
