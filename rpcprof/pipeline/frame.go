package pipeline

import (
	"encoding/binary"
	"fmt"
	"math"
)

const (
	// DefaultMaxFrame is the longest frame that is taken or sent unless another
	// limit is set, in bytes after the length field.
	DefaultMaxFrame = 1 << 20
	// MaxName is the longest method name, in bytes.
	MaxName = 255

	minMaxFrame = 2048    // so that every error fits
	maxMaxFrame = 1 << 30 // so that lengths fit an int anywhere

	lengthSize = 4
	headSize   = 8 + 1 // sequence id and kind
	timingSize = 24    // the server's times in a reply
)

type kind uint8

const (
	kindRequest kind = 1
	kindReply   kind = 2
	kindError   kind = 3

	// timed, added to a kind: a request asks for the server's times, a reply or an
	// error has them.
	timed kind = 0x80
)

// frame is one frame, decoded. Its name and payload alias the buffer that it was
// cut from.
type frame struct {
	seq      uint64
	kind     kind
	code     uint8  // of an error
	name     []byte // of a request
	deadline int64  // of a request: nanoseconds left, 0 none
	payload  []byte // or an error's message

	timed  bool // has or asks for the server's times
	timing [timingSize]byte

	size   int   // in bytes, with the length field
	offset int64 // of its first byte in all that the connection has received
}

// parseFrame decodes the frame at the beginning of b. It gives a frame of size 0
// when b does not hold all of it; need is then how long b must become for the
// next attempt. Nothing is believed before it is checked: the length is held
// against the limit before anything waits for that many bytes.
func parseFrame(b []byte, limit int) (f frame, need int, err error) {
	if len(b) < lengthSize {
		return frame{}, lengthSize, nil
	}
	n := binary.LittleEndian.Uint32(b)
	if uint64(n) > uint64(limit) {
		return frame{}, 0, fmt.Errorf("%w: %d bytes where %d are allowed", ErrFrameTooLarge, n, limit)
	}
	if n < headSize {
		return frame{}, 0, fmt.Errorf("%w: %d bytes are too few", ErrMalformed, n)
	}
	size := lengthSize + int(n)
	if len(b) < size {
		return frame{}, size, nil
	}
	f = frame{seq: binary.LittleEndian.Uint64(b[4:]), kind: kind(b[12]) &^ timed, timed: kind(b[12])&timed != 0, size: size}
	// The capacity ends with the frame: a handler that appends to its request must
	// not write into the next one.
	rest := b[lengthSize+headSize : size : size]
	if f.timed && f.kind != kindRequest {
		if len(rest) < timingSize {
			return frame{}, 0, fmt.Errorf("%w: reply without the times it should have", ErrMalformed)
		}
		rest = rest[copy(f.timing[:], rest):]
	}
	switch f.kind {
	case kindRequest:
		if len(rest) < 2 {
			return frame{}, 0, fmt.Errorf("%w: request without a name", ErrMalformed)
		}
		name := int(binary.LittleEndian.Uint16(rest))
		rest = rest[2:]
		if name == 0 || name > MaxName || len(rest) < name+8 {
			return frame{}, 0, fmt.Errorf("%w: request with a name of %d bytes", ErrMalformed, name)
		}
		f.name, rest = rest[:name:name], rest[name:]
		left := binary.LittleEndian.Uint64(rest)
		if left > math.MaxInt64 {
			return frame{}, 0, fmt.Errorf("%w: deadline out of range", ErrMalformed)
		}
		f.deadline, f.payload = int64(left), rest[8:]
	case kindReply:
		f.payload = rest
	case kindError:
		if len(rest) < 1 {
			return frame{}, 0, fmt.Errorf("%w: error without a code", ErrMalformed)
		}
		f.code, f.payload = rest[0], rest[1:]
	default:
		return frame{}, 0, fmt.Errorf("%w: kind %d", ErrMalformed, f.kind)
	}
	return f, 0, nil
}

// encodedSize is the frame's size on the wire, with the length field.
func (f *frame) encodedSize() int {
	n := lengthSize + headSize + len(f.payload)
	switch f.kind {
	case kindRequest:
		n += 2 + len(f.name) + 8
	case kindError:
		n++
	}
	if f.timed && f.kind != kindRequest {
		n += timingSize
	}
	return n
}

// appendFrame encodes f. The caller has held its size against the limit.
func appendFrame(b []byte, f *frame) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(f.encodedSize()-lengthSize))
	b = binary.LittleEndian.AppendUint64(b, f.seq)
	k := f.kind
	if f.timed {
		k |= timed
	}
	b = append(b, byte(k))
	if f.timed && f.kind != kindRequest {
		b = append(b, f.timing[:]...)
	}
	switch f.kind {
	case kindRequest:
		b = binary.LittleEndian.AppendUint16(b, uint16(len(f.name)))
		b = append(b, f.name...)
		b = binary.LittleEndian.AppendUint64(b, uint64(f.deadline))
	case kindError:
		b = append(b, f.code)
	}
	return append(b, f.payload...)
}

// limitOf gives a usable limit for a frame's length: the default for 0 or less.
func limitOf(n int) int {
	if n <= 0 {
		return DefaultMaxFrame
	}
	return min(max(n, minMaxFrame), maxMaxFrame)
}
