package segment

// Record is one finished call, region or task. Seq is its number in the shard plus
// one. The head is raised when the record is complete; the one that is a whole ring
// behind the head may be written over at any time.
//
// A client's record has no worker and no place in received bytes. It holds there
// what the server said of the call: see ServerTiming.
type Record struct {
	Seq        uint64
	Call       uint64
	Parent     uint64 // the call it was made in, 0 none
	Method     uint32
	Outcome    Outcome
	Flags      uint8
	Workers    uint16        // workers of its queue
	Stamps     [Stamps]int64 // 0 where not taken
	Release    int64         // when its worker was free again
	Offset     uint64        // of the request's first byte in the connection's received bytes; NoOffset when unknown
	Queue      uint32
	Worker     uint32 // slot of the role that ran it
	Conn       uint32
	RecvTID    uint32
	HandlerTID uint32
	WriteTID   uint32
	BytesIn    uint32
	BytesOut   uint32
	Batch      uint32 // number of the read on its connection
	BatchSize  uint16 // messages cut from that read
	BatchPos   uint16
	Goid       uint64
	TraceID    [16]byte
	SpanID     [8]byte
	ThreadCPU  int64 // nanoseconds of CPU from dequeue to release; 0 when not measured
}

// Flags of a record.
const (
	FlagServerTiming = 1 << iota // a client's: the reply carried the server's times
	FlagCut                      // given up: the last stamp is when, and ends the stage it was in
)

// Timing is what a server says of a call in its reply: the call's id there, and how
// long its stages took, up to when the reply entered the write.
type Timing struct {
	Call                           uint64
	Queue, Decode, Handler, Encode int64 // ns, in steps of TimingUnit
}

// TimingUnit is the precision of a Timing in nanoseconds; its longest is 68 s.
const TimingUnit = 16

// TimingSize is how many bytes a Timing takes in a reply.
const TimingSize = 24

// Total is the time from recv to write.
func (t *Timing) Total() int64 { return t.Queue + t.Decode + t.Handler + t.Encode }

// ServerTiming gives what the server said, false where it said nothing.
func (r *Record) ServerTiming() (t Timing, ok bool) {
	if r.Flags&FlagServerTiming == 0 {
		return t, false
	}
	lo := func(v uint64) int64 { return int64(uint32(v)) * TimingUnit }
	t.Call = uint64(r.Queue) | uint64(r.Worker)<<32
	t.Queue, t.Decode = lo(uint64(r.Release)), lo(uint64(r.Release)>>32)
	t.Handler, t.Encode = lo(r.Offset), lo(r.Offset>>32)
	return t, true
}

// SetServerTiming keeps what the server said in a client's record.
func (r *Record) SetServerTiming(t Timing) {
	u := func(ns int64) uint64 { return uint64(min(max(ns, 0)/TimingUnit, 1<<32-1)) }
	r.Flags |= FlagServerTiming
	r.Queue, r.Worker = uint32(t.Call), uint32(t.Call>>32)
	r.Release = int64(u(t.Queue) | u(t.Decode)<<32)
	r.Offset = u(t.Handler) | u(t.Encode)<<32
}

// SlowSet is the slowest calls of one method in one minute, in no order; a Seq of 0
// marks a place that is free or being written.
type SlowSet struct {
	Minute  int64 // of the clock, plus one; 0 where there is none yet
	_       [7]uint64
	Records [SlowKept]Record
}

// RuntimeSample is one reading of the Go runtime's own metrics (package
// runtime/metrics); all but AtNS, Heap, Goroutines and Procs count from the start.
type RuntimeSample struct {
	Seq          uint64 // its number plus one; 0 while it is written
	AtNS         int64
	GCCycles     uint64
	GCPauses     uint64 // stop-the-world pauses for the collector
	GCPauseNS    uint64 // their sum, from a histogram: within its buckets
	GCAssistNS   uint64 // CPU time of goroutines made to help the collector
	GCMarkNS     uint64 // CPU time of its own workers
	AllocObjects uint64
	AllocBytes   uint64
	HeapBytes    uint64 // of live objects and those not swept yet
	Goroutines   uint64
	Switches     uint64 // of goroutines, estimated from those the runtime samples (1 in 8)
	SchedWaitNS  uint64 // time goroutines were runnable, estimated likewise
	Procs        uint64 // GOMAXPROCS
	_            [18]uint64
}

// NoOffset marks a request whose place in the byte stream is unknown.
const NoOffset = ^uint64(0)
