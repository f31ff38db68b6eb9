package segment

import "unsafe"

// A second, small memfd takes requests from outside. Whoever may open it through
// /proc/PID/fd, which is the process's own user and root, writes one request; the
// library looks once a second, answers the newest, and may refuse. It is part of
// the format: FORMAT.md describes it.
const (
	ControlMagic   = 0x314c544350435052 // "RPCPCTL1", little endian
	ControlVersion = 1
	// ControlName is the name of the control file, and TraceName that of a file in
	// which an execution trace comes back.
	ControlName = "rpcprof-control"
	TraceName   = "rpcprof-trace"
	ControlSize = 4096
)

// Kinds of request.
const (
	RequestNone  uint32 = iota
	RequestTrace        // an execution trace of Arg milliseconds
)

// Bounds of requests.
const (
	MaxTraceMS    = 5000     // the longest trace
	TraceEveryMS  = 10_000   // from the end of one trace to the beginning of the next
	MaxTraceBytes = 64 << 20 // a longer one is cut short
)

// Status of an answer.
const (
	StatusNone    uint32 = iota
	StatusRunning        // under way
	StatusDone           // the trace is in the file that bears TraceName
	StatusRefused        // Message says why
	StatusFailed         // likewise
)

// Control is the file's layout.
type Control struct {
	Magic   uint64
	Version uint32
	PID     uint32
	Seq     uint32 // of the profiler that looks here, as in its segment's header
	_       uint32
	_       [5]uint64

	// Written by those who ask: ID last. A new ID is a new request.
	ID   uint64
	Kind uint32
	Arg  uint32
	_    [6]uint64

	// Written by the library: Answer, the ID it is about, last.
	Answer  uint64
	Status  uint32
	_       uint32
	Bytes   uint64 // of the trace
	StartNS int64  // when it began and ended, by the segment's clock
	EndNS   int64
	Message [128]byte
}

var _ [ControlSize - unsafe.Sizeof(Control{})]struct{}

// MessageString says why a request was refused or failed.
func (c *Control) MessageString() string { return cstring(c.Message[:]) }
