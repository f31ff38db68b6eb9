package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// A frame begins with the length of what follows, 4 bytes, and the call's number,
// 8. Then a request has the length of its method's name, 1, the name and the
// payload; a reply has 1 byte, not 0 for an error, and the payload or message.
const (
	lengthSize = 4
	seqSize    = 8
	headSize   = lengthSize + seqSize + 1
	maxFrame   = 64 << 10 // also the buffers' size, so that any frame fits into one
)

var errFrame = errors.New("malformed frame")

// readFrame reads a frame into memory of its own.
func readFrame(in *bufio.Reader) ([]byte, error) {
	head, err := in.Peek(lengthSize)
	if err != nil {
		return nil, err
	}
	n := lengthSize + uint64(binary.LittleEndian.Uint32(head))
	if n < headSize || n > maxFrame {
		return nil, errFrame // and again: nothing was taken
	}
	b := make([]byte, n)
	_, err = io.ReadFull(in, b)
	return b, err
}

// complete says whether a frame can be had without another read.
func complete(in *bufio.Reader) bool {
	if in.Buffered() < lengthSize {
		return false
	}
	head, _ := in.Peek(lengthSize)
	return uint64(in.Buffered()) >= lengthSize+uint64(binary.LittleEndian.Uint32(head))
}

func appendHead(b []byte, seq uint64, last byte) []byte {
	b = append(b, 0, 0, 0, 0) // the length, at the end
	b = binary.LittleEndian.AppendUint64(b, seq)
	return append(b, last)
}

func finish(b []byte) []byte {
	binary.LittleEndian.PutUint32(b, uint32(len(b)-lengthSize))
	return b
}

// encodeRequest encodes a request; the client has checked the lengths.
func encodeRequest(seq uint64, name string, payload []byte) []byte {
	b := appendHead(make([]byte, 0, headSize+len(name)+len(payload)), seq, byte(len(name)))
	return finish(append(append(b, name...), payload...))
}

func parseRequest(b []byte) (seq uint64, name string, payload []byte, err error) {
	n := int(b[headSize-1])
	if len(b) < headSize+n {
		return 0, "", nil, errFrame
	}
	return binary.LittleEndian.Uint64(b[lengthSize:]), string(b[headSize : headSize+n]), b[headSize+n:], nil
}

// encodeReply encodes a reply, or the error that it is.
func encodeReply(seq uint64, out []byte, err error) []byte {
	if err == nil && headSize+len(out) > maxFrame {
		err = errors.New("reply too large")
	}
	var failed byte
	if err != nil {
		failed, out = 1, []byte(err.Error())
		out = out[:min(len(out), maxFrame-headSize)]
	}
	return finish(append(appendHead(make([]byte, 0, headSize+len(out)), seq, failed), out...))
}

func parseReply(b []byte) (seq uint64, payload []byte, err error) {
	seq, payload = binary.LittleEndian.Uint64(b[lengthSize:]), b[headSize:]
	if b[headSize-1] != 0 {
		return seq, nil, errors.New(string(payload))
	}
	return seq, payload, nil
}
