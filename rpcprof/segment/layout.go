package segment

import "unsafe"

// Identity of the format; FORMAT.md has the rule. A reader accepts the versions it
// knows. A writer that adds fields in reserved space, or sections, keeps the version
// and raises the revision; one that moves or resizes anything raises the version.
const (
	Magic    = 0x31464f5250435052 // "RPCPROF1", little endian
	Version  = 2
	Revision = 0
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
	SlowSetSize    = 64 + SlowKept*RecordSize
	RuntimeSize    = 256
	SectionSize    = 32
	HistogramWords = 512
	HistogramSize  = HistogramWords * 8

	// MaxFileSize bounds what a reader accepts.
	MaxFileSize = 2 << 30
	// MaxMethods, MaxConns, MaxSlots and MaxShards bound the tables of a file that is accepted.
	MaxMethods = 4096
	MaxConns   = 1 << 16
	MaxSlots   = 1 << 18
	MaxShards  = 1024
	// MaxRing bounds the records of all shards' rings together, MaxFailed those of
	// their rings of failed calls: so much can be handed out at once.
	MaxRing   = 1 << 20
	MaxFailed = MaxRing / 4
)

// What is kept beyond the ring: the slowest calls of each method in the current
// minute and the ones before it, and the last of the calls that did not end well.
const (
	SlowKept    = 8
	SlowMinutes = 4
)

// RuntimeKept is how many of the runtime's readings are kept, one a second.
const RuntimeKept = 64

// MaxSections bounds the directory.
const MaxSections = 24

// Header flags.
const (
	FlagGoroutines = 1 << iota // the goroutine offsets below were found and verified
	FlagClosed                 // the profiler was closed; nothing more will be written
	FlagThreads                // calls run on threads: index and slots hold thread ids where they would hold goroutines
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

	// Since version 2.
	Revision, SectionCount uint32
	SlowOff, FailedOff     uint32 // within a shard; 0: not kept
	FailedCap, CPUEvery    uint32 // FailedCap is a power of two; the CPU time of one call in CPUEvery is measured
	RuntimeOff, RuntimeCap uint32
	Sections               [MaxSections]Section // every part of the file but the header
}

// Section is an entry of the directory. A reader reads the parts that it knows from
// the fields above and says which of the others it skips.
type Section struct {
	Name      [16]byte
	Off, Size uint64
}

// NameString is the section's name.
func (s *Section) NameString() string { return cstring(s.Name[:]) }

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

// Slot is what a call, a task or a role is doing now. The first half is one cache
// line and is all that a BPF program reads. A stage change is two stores, the stamp
// first; a reader that copies a slot while it changes may see a stamp of the next stage.
type Slot struct {
	Call   uint64 // call id, 0 for a role or a free slot
	G      uint64 // address of the goroutine that runs it, 0 none
	Goid   uint64 // its id, so that a reused address is noticed
	Method uint32
	Stage  Stage
	Kind   Kind
	Flags  uint16
	Parent uint64 // the call it was made in, 0 none
	Conn   uint32
	Worker uint32 // slot of the role that runs it
	Queue  uint32
	TID    uint32
	Region uint32 // the region its handler is in, a method id plus one; 0 none
	_      uint32

	Stamps [Stamps]int64 // 0 where not taken; of a role, the first is when it began
}

// Since is when the stage began that the slot is in.
func (s *Slot) Since() int64 {
	for i := min(int(s.Stage), Stamps) - 1; i > 0; i-- {
		if t := s.Stamps[i]; t != 0 {
			return t
		}
	}
	return s.Stamps[0]
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
	Head   uint64 // records ever written; record i is in place i & (RingCap-1)
	Seq    uint64 // call ids given out, where the writer counts them here
	Failed uint64 // records ever written to the shard's ring of failed calls
	_      [13]uint64
}

// BucketOf gives the index bucket of a goroutine's address (Fibonacci hashing).
// The BPF program in probes/bpf computes the same.
func BucketOf(g uint64, bits uint32) uint64 {
	return (g * 0x9E3779B97F4A7C15) >> (64 - bits)
}

// CallID numbers calls without coordination: the profiler in the upper 8 bits, the
// shard in the next 12, its own count below.
func CallID(profiler uint32, shard int, n uint64) uint64 {
	return uint64(profiler)<<56 | uint64(shard+1)<<44 | n&(1<<44-1)
}

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
	_ [SlowSetSize - unsafe.Sizeof(SlowSet{})]struct{}
	_ [unsafe.Sizeof(SlowSet{}) - SlowSetSize]struct{}
	_ [RuntimeSize - unsafe.Sizeof(RuntimeSample{})]struct{}
	_ [unsafe.Sizeof(RuntimeSample{}) - RuntimeSize]struct{}
	_ [SectionSize - unsafe.Sizeof(Section{})]struct{}
	_ [unsafe.Sizeof(Section{}) - SectionSize]struct{}
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
