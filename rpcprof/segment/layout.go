package segment

import (
	"math/bits"
	"unsafe"
)

// Identity of the format. A reader accepts exactly the versions it knows; a
// writer that adds fields in reserved space keeps the version, one that moves
// or resizes anything raises it.
const (
	Magic   = 0x31464f5250435052 // "RPCPROF1", little endian
	Version = 1
	// FileName is the name given to memfd_create; /proc/PID/fd shows it as
	// "/memfd:rpcprof (deleted)".
	FileName = "rpcprof"
)

// Sizes of the fixed parts. All offsets in the header are in bytes from the
// start of the file, all are multiples of 64, and all integers are little endian.
const (
	HeaderSize     = 4096
	MethodSize     = 128
	ConnSize       = 128
	SlotSize       = 128
	BucketSize     = 64 // one index bucket: four entries, one cache line
	BucketEntries  = 4
	ShardHeadSize  = 128
	RecordSize     = 192
	HistogramWords = 512
	HistogramSize  = HistogramWords * 8

	// MaxFileSize bounds what a reader accepts.
	MaxFileSize = 2 << 30
	// MaxMethods, MaxConns, MaxSlots and MaxShards bound the tables of a file that is accepted.
	MaxMethods = 4096
	MaxConns   = 1 << 16
	MaxSlots   = 1 << 18
	MaxShards  = 1024
	MaxRing    = 1 << 20
)

// Stamp is one instant in a call on the server side, in the order they are taken.
// Arrive, which comes before Recv, is the kernel's and not in the segment.
type Stamp uint8

const (
	Recv    Stamp = iota // the request's frame is complete in user memory
	Dequeue              // a worker takes the request
	Handler              // user code starts
	Handled              // user code returned
	Write                // the reply's bytes enter the write to the socket
	Sent                 // that write returned
	Stamps               // how many there are
)

// Stage is the time between two stamps; it bears the name under which the
// design speaks of it.
type Stage uint8

const (
	StageRecv    Stage = iota // arrive to recv; known only with kernel evidence
	StageQueue                // recv to dequeue
	StageDecode               // dequeue to handler
	StageHandler              // handler to handled
	StageEncode               // handled to write
	StageWrite                // write to sent
	Stages
)

// StageNames holds the words used in output, by Stage.
var StageNames = [Stages]string{"recv", "queue", "decode", "handler", "encode", "write"}

func (s Stage) String() string {
	if s < Stages {
		return StageNames[s]
	}
	return "unknown"
}

// Outcome says how a call ended.
type Outcome uint8

const (
	Unfinished Outcome = iota
	OK
	Error
	Cancelled
	Expired // its deadline passed
	Shed    // refused at a limit
	Outcomes
)

var outcomeNames = [Outcomes]string{"unfinished", "ok", "error", "cancelled", "expired", "shed"}

func (o Outcome) String() string {
	if o < Outcomes {
		return outcomeNames[o]
	}
	return "unknown"
}

// Kind says what a slot stands for.
type Kind uint8

const (
	KindFree   Kind = iota
	KindCall        // one call between recv and sent
	KindReader      // the goroutine that reads a connection
	KindWriter      // the goroutine that writes a connection
	KindWorker      // a goroutine that takes calls from a queue
	Kinds
)

var kindNames = [Kinds]string{"free", "call", "reader", "writer", "worker"}

func (k Kind) String() string {
	if k < Kinds {
		return kindNames[k]
	}
	return "unknown"
}

// Side tells a method served from a method called.
type Side uint32

const (
	Server Side = iota
	Client
)

func (s Side) String() string {
	if s == Client {
		return "client"
	}
	return "server"
}

// Header flags.
const (
	FlagGoroutines = 1 << iota // the goroutine offsets below were found and verified
	FlagClosed                 // the profiler was closed; nothing more will be written
)

// Clocks.
const ClockMonotonic = 1 // CLOCK_MONOTONIC nanoseconds

// Header is the first part of the file.
type Header struct {
	Magic    uint64
	Version  uint32
	Size     uint32 // of this struct's page, HeaderSize
	FileSize uint64
	PID      uint32 // as the process sees itself
	Flags    uint32
	StartNS  int64 // when the segment was made, by Clock
	Clock    uint32
	Seq      uint32 // distinguishes several profilers of one process
	Base     uint64 // where the writer mapped the file, for a BPF program that follows the index

	MethodsOff, MethodCap uint32
	MethodCount, _        uint32
	ConnsOff, ConnCap     uint32
	ConnHigh, _           uint32 // entries [0, ConnHigh) have ever been used
	SlotsOff, SlotCap     uint32 // call slots first, then role slots
	CallSlots, _          uint32 // how many of SlotCap are for calls
	CallHigh, RoleHigh    uint32 // slots [0, CallHigh) and [CallSlots, RoleHigh) have ever been used
	IndexOff, IndexBits   uint32 // 1<<IndexBits buckets
	ShardsOff             uint64
	ShardSize             uint64
	ShardCap, RingCap     uint32 // RingCap is a power of two
	RingOff, HistOff      uint32 // within a shard
	HistsPerMethod, _     uint32

	// Go runtime offsets in bytes, valid with FlagGoroutines. TLSOff is relative
	// to the thread's fs base and negative on amd64.
	TLSOff                    int32
	GM, GGoid                 uint32
	GStatus, GWaitReason      uint32
	GSchedPC, GSchedBP        uint32
	MG0, MCurG, MProcID       uint32
	GStackLo, _               uint32
	GoVersion                 [32]byte
	Service                   [64]byte
	Degraded                  [160]byte // why something is missing, empty when nothing is
	LostCalls, NoSlot, NoIdx  uint64    // calls not recorded; without a slot; goroutines without an index entry
	MethodsRefused, NoRole, _ uint64
}

// Method is one entry of the method table. Entries are appended, never changed.
type Method struct {
	Side Side
	Len  uint32
	Name [120]byte
}

// Conn is one entry of the connection table. ID is generation<<16 | entry, so
// that a record's connection is not mistaken for a later one in the same entry.
type Conn struct {
	ID       uint32
	Open     uint32
	Cookie   uint64 // the socket's, 0 when unknown
	OpenedNS int64
	Reader   uint32 // slot of the reader's role, 0 none
	Writer   uint32
	Local    [48]byte
	Remote   [48]byte
}

// Slot is what a call or a role is doing now. The first half is one cache line
// and is all that a BPF program reads. Stage changes are single stores; a reader
// that copies a slot while it changes may see the new stage with the old start.
type Slot struct {
	Call       uint64 // call id, 0 for a role or a free slot
	G          uint64 // address of the goroutine that runs it, 0 none
	Goid       uint64 // its id, so that a reused address is noticed
	Method     uint32
	Stage      Stage
	Kind       Kind
	Flags      uint16
	StageStart int64
	Conn       uint32
	Worker     uint32 // slot of the role that runs it
	Queue      uint32
	TID        uint32
	_          uint64

	Stamps [Stamps]int64 // 0 where not taken
	Parent uint64
	_      uint64
}

// IndexEntry leads from a goroutine to its slot.
type IndexEntry struct {
	G    uint64
	Slot uint32
	_    uint32
}

// Bucket is one cache line of the index. A goroutine's entry is in the bucket
// that BucketOf names, and nowhere else.
type Bucket [BucketEntries]IndexEntry

// ShardHead begins each shard. A shard is written by one P at a time.
type ShardHead struct {
	Head uint64 // records ever written; record i is in place i & (RingCap-1)
	Seq  uint64 // call ids given out
	_    [14]uint64
}

// Record is one finished call. Seq is its number in the shard plus one. The head
// is raised when the record is complete; the one that is a whole ring behind the
// head may be written over at any time.
type Record struct {
	Seq        uint64
	Call       uint64
	Method     uint32
	Outcome    Outcome
	Flags      uint8
	Workers    uint16        // workers of its queue
	Stamps     [Stamps]int64 // 0 where not taken
	Release    int64         // when its worker was free again
	Conn       uint32
	Queue      uint32
	Worker     uint32 // slot of the role that ran it
	RecvTID    uint32
	HandlerTID uint32
	WriteTID   uint32
	BytesIn    uint32
	BytesOut   uint32
	Offset     uint64 // of the request's first byte in the connection's received bytes; NoOffset when unknown
	Batch      uint32 // number of the read on its connection
	BatchSize  uint16 // messages cut from that read
	BatchPos   uint16
	Goid       uint64
	Parent     uint64
	TraceID    [16]byte
	SpanID     [8]byte
	ThreadCPU  int64 // nanoseconds, 0 when not measured
	_          [2]uint64
}

// NoOffset marks a request whose place in the byte stream is unknown.
const NoOffset = ^uint64(0)

// Histograms kept for each method, in this order: the stages but recv, then the
// whole call from recv to sent.
const (
	HistTotal      = int(Stages) - 1
	HistsPerMethod = HistTotal + 1
)

// Histogram is log-linear: sixteen buckets to a power of two, in units of 16 ns,
// so a value is known within 6.25 %. Word 0 is the sum in nanoseconds; words
// 1.. are the buckets.
type Histogram [HistogramWords]uint64

// Buckets is how many buckets a Histogram has; the last one takes all that is longer.
const Buckets = HistogramWords - 1

const (
	histUnitShift = 4
	histSubBits   = 4
)

// BucketFor gives the bucket of a duration in nanoseconds; negative ones count as 0.
func BucketFor(ns int64) int {
	if ns < 0 {
		return 0
	}
	v := uint64(ns) >> histUnitShift
	if v < 1<<histSubBits {
		return int(v)
	}
	e := bits.Len64(v) - 1 - histSubBits
	i := (e+1)<<histSubBits + int(v>>uint(e))&(1<<histSubBits-1)
	return min(i, Buckets-1)
}

// BucketBounds gives the half-open range of a bucket in nanoseconds. The last
// bucket's upper bound is its lower bound: it has none.
func BucketBounds(i int) (lo, hi int64) {
	lo = bucketLow(i)
	if i >= Buckets-1 {
		return lo, lo
	}
	return lo, bucketLow(i + 1)
}

func bucketLow(i int) int64 {
	if i < 1<<histSubBits {
		return int64(i) << histUnitShift
	}
	e := i>>histSubBits - 1
	m := i&(1<<histSubBits-1) | 1<<histSubBits
	return int64(m) << uint(e+histUnitShift)
}

// BucketOf gives the index bucket of a goroutine's address (Fibonacci hashing).
// The BPF program in probes/bpf computes the same.
func BucketOf(g uint64, bits uint32) uint64 {
	return (g * 0x9E3779B97F4A7C15) >> (64 - bits)
}

// CallID numbers calls without coordination: the shard in the upper 16 bits,
// its own count below.
func CallID(shard int, n uint64) uint64 { return uint64(shard+1)<<48 | n&(1<<48-1) }

// The sizes are the format: a change here does not compile.
var (
	_ [MethodSize - unsafe.Sizeof(Method{})]struct{}
	_ [unsafe.Sizeof(Method{}) - MethodSize]struct{}
	_ [ConnSize - unsafe.Sizeof(Conn{})]struct{}
	_ [unsafe.Sizeof(Conn{}) - ConnSize]struct{}
	_ [SlotSize - unsafe.Sizeof(Slot{})]struct{}
	_ [unsafe.Sizeof(Slot{}) - SlotSize]struct{}
	_ [BucketSize - unsafe.Sizeof(Bucket{})]struct{}
	_ [unsafe.Sizeof(Bucket{}) - BucketSize]struct{}
	_ [ShardHeadSize - unsafe.Sizeof(ShardHead{})]struct{}
	_ [unsafe.Sizeof(ShardHead{}) - ShardHeadSize]struct{}
	_ [RecordSize - unsafe.Sizeof(Record{})]struct{}
	_ [unsafe.Sizeof(Record{}) - RecordSize]struct{}
	_ [HeaderSize - unsafe.Sizeof(Header{})]struct{}
)

// cstring cuts a fixed field at its first zero byte.
func cstring(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// GoVersionString and the two below give the text fields of a header.
func (h *Header) GoVersionString() string { return cstring(h.GoVersion[:]) }

// ServiceString is the name the owner gave the service.
func (h *Header) ServiceString() string { return cstring(h.Service[:]) }

// DegradedString says what is missing and why, or is empty.
func (h *Header) DegradedString() string { return cstring(h.Degraded[:]) }

// NameString is the method's fully qualified name.
func (m *Method) NameString() string { return string(m.Name[:min(m.Len, uint32(len(m.Name)))]) }

// LocalString and RemoteString are the connection's addresses as text.
func (c *Conn) LocalString() string { return cstring(c.Local[:]) }

// RemoteString is the peer's address as text.
func (c *Conn) RemoteString() string { return cstring(c.Remote[:]) }
