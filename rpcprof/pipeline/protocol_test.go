package pipeline_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/rpcprof/toolkit/rpcprof/pipeline"
)

// The tests write frames by hand, so that the protocol is what the documentation
// says and not what the encoder does.

func rawFrame(seq uint64, kind byte, rest []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(9+len(rest)))
	b = binary.LittleEndian.AppendUint64(b, seq)
	return append(append(b, kind), rest...)
}

func rawRequest(seq uint64, name string, left uint64, payload []byte) []byte {
	rest := binary.LittleEndian.AppendUint16(nil, uint16(len(name)))
	rest = binary.LittleEndian.AppendUint64(append(rest, name...), left)
	return rawFrame(seq, 1, append(rest, payload...))
}

// readRaw reads one frame: its sequence id, kind and the rest.
func readRaw(t *testing.T, r io.Reader) (uint64, byte, []byte) {
	t.Helper()
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, binary.LittleEndian.Uint32(head[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint64(b), b[8], b[9:]
}

func TestFramesByHand(t *testing.T) {
	checkGoroutines(t)
	nc := dialRaw(t, serve(t, pipeline.ServerConfig{}, map[string]pipeline.Handler{"Echo": echo}))
	req := rawRequest(7, "Echo", 0, []byte("payload"))
	for i := range req { // in pieces of one byte
		if _, err := nc.Write(req[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if seq, kind, rest := readRaw(t, nc); seq != 7 || kind != 2 || string(rest) != "payload" {
		t.Errorf("reply %d, kind %d, %q", seq, kind, rest)
	}
	if _, err := nc.Write(rawRequest(8, "None", 0, nil)); err != nil {
		t.Fatal(err)
	}
	if seq, kind, rest := readRaw(t, nc); seq != 8 || kind != 3 || string(rest) != "\x01unknown method None" {
		t.Errorf("error %d, kind %d, %q", seq, kind, rest)
	}
}

func TestServerRefuses(t *testing.T) {
	long := string(make([]byte, pipeline.MaxName+1))
	for name, b := range map[string][]byte{
		"too long":              {0xff, 0xff, 0xff, 0xff},
		"one over the limit":    binary.LittleEndian.AppendUint32(nil, 1<<20+1),
		"too short":             {8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8},
		"empty":                 {0, 0, 0, 0},
		"kind 0":                rawFrame(1, 0, nil),
		"kind 4":                rawFrame(1, 4, nil),
		"reply":                 rawFrame(1, 2, []byte("x")),
		"error":                 rawFrame(1, 3, []byte("x")),
		"error without code":    rawFrame(1, 3, nil),
		"request without name":  rawFrame(1, 1, nil),
		"name of no bytes":      rawRequest(1, "", 0, nil),
		"name too long":         rawRequest(1, long, 0, nil),
		"name beyond the frame": rawFrame(1, 1, []byte{200, 0, 'a'}),
		"deadline cut off":      rawFrame(1, 1, []byte{1, 0, 'a', 1, 2, 3}),
		"deadline out of range": rawRequest(1, "Echo", 1<<63, nil),
		"behind a good one":     append(rawRequest(1, "Echo", 0, nil), 0, 0, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			checkGoroutines(t)
			nc := dialRaw(t, serve(t, pipeline.ServerConfig{Workers: 1}, map[string]pipeline.Handler{"Echo": echo}))
			if _, err := nc.Write(b); err != nil {
				t.Fatal(err)
			}
			_, err := io.ReadAll(nc)
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() {
				t.Error("the connection was not closed")
			}
		})
	}
}

func TestClientRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		bytes []byte
		want  error
	}{
		"too long":  {[]byte{0xff, 0xff, 0xff, 0x7f}, pipeline.ErrFrameTooLarge},
		"malformed": {[]byte{1, 0, 0, 0}, pipeline.ErrMalformed},
		"request":   {rawRequest(1, "Echo", 0, nil), pipeline.ErrMalformed},
		"cut off":   {[]byte{20, 0, 0, 0, 1}, io.ErrUnexpectedEOF},
		"nothing":   {nil, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			checkGoroutines(t)
			near, far := net.Pipe()
			c := pipeline.NewClient(near)
			defer c.Close()
			told := make(chan error, 2)
			for range cap(told) {
				go func() {
					_, err := c.Call(context.Background(), "Echo", nil)
					told <- err
				}()
			}
			for range cap(told) {
				readRaw(t, far)
			}
			_, _ = far.Write(tt.bytes)
			_ = far.Close()
			for range cap(told) {
				if err := receive(t, told); !errors.Is(err, tt.want) || !errors.Is(err, pipeline.ErrClosed) {
					t.Errorf("caller was told %v", err)
				}
			}
		})
	}
}

// Replies to ids that nobody waits for are dropped.
func TestUnknownReply(t *testing.T) {
	checkGoroutines(t)
	near, far := net.Pipe()
	defer far.Close()
	c := pipeline.NewClient(near)
	defer c.Close()
	written := make(chan bool)
	go func() {
		defer close(written)
		seq, _, _ := readRaw(t, far)
		for _, b := range [][]byte{
			rawFrame(seq+100, 2, []byte("nobody's")),
			rawFrame(seq+100, 3, []byte("\x02nobody's")),
			rawFrame(seq, 2, []byte("mine")),
			rawFrame(seq, 2, []byte("again")),
		} {
			if _, err := far.Write(b); err != nil {
				t.Error(err)
			}
		}
	}()
	got, err := c.Call(within(t), "Echo", nil)
	receive(t, written) // also the second reply, which comes when the call is over
	if err != nil || string(got) != "mine" {
		t.Errorf("%q, %v", got, err)
	}
}

// A call that is too large fails alone; a limit can be raised on both sides.
func TestLargeCall(t *testing.T) {
	checkGoroutines(t)
	addr := serve(t, pipeline.ServerConfig{MaxFrame: 3 << 20}, map[string]pipeline.Handler{"Echo": echo})
	c := dial(t, addr)
	big := make([]byte, 2<<20)
	if _, err := c.Call(within(t), "Echo", big); !errors.Is(err, pipeline.ErrFrameTooLarge) {
		t.Errorf("too large: %v", err)
	}
	for _, name := range []string{"", string(make([]byte, pipeline.MaxName+1))} {
		if _, err := c.Call(within(t), name, nil); err == nil {
			t.Errorf("a name of %d bytes was sent", len(name))
		}
	}
	large, err := pipeline.ClientConfig{MaxFrame: 3 << 20}.Dial(within(t), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer large.Close()
	if got, err := large.Call(within(t), "Echo", big); err != nil || len(got) != len(big) {
		t.Errorf("large: %d bytes, %v", len(got), err)
	}
}

// The deadline reaches the handler's context.
func TestDeadlineReachesHandler(t *testing.T) {
	checkGoroutines(t)
	nc := dialRaw(t, serve(t, pipeline.ServerConfig{Workers: 1}, map[string]pipeline.Handler{
		"Deadline": func(ctx context.Context, _ []byte) ([]byte, error) {
			at, ok := ctx.Deadline()
			if left := time.Until(at); !ok || left <= 0 || left > time.Hour {
				t.Errorf("deadline %v, %v", at, ok)
			}
			return nil, nil
		},
		"None": func(ctx context.Context, _ []byte) ([]byte, error) {
			if _, ok := ctx.Deadline(); ok {
				t.Error("a deadline where the frame has none")
			}
			return nil, nil
		},
	}))
	for seq, r := range [][]byte{
		rawRequest(0, "Deadline", uint64(time.Hour), nil),
		rawRequest(1, "None", 0, nil),
		rawRequest(2, "None", 1<<63-1, nil), // 292 years are none
	} {
		if _, err := nc.Write(r); err != nil {
			t.Fatal(err)
		}
		if got, kind, _ := readRaw(t, nc); got != uint64(seq) || kind != 2 {
			t.Errorf("reply %d, kind %d", got, kind)
		}
	}
}
