package profile

import "github.com/rpcprof/toolkit/rpcprof/segment"

// Evidence is all that was seen in a window, not yet joined.
type Evidence struct {
	Window  Window
	Methods []string       // by method id
	Sides   []segment.Side // of those; the server's where there is none
	// Calls are those that finished in the window, and those in flight at its
	// end with outcome Unfinished.
	Calls     []Call
	Roles     []Role
	Intervals []Interval
	Samples   []Sample
	Arrivals  []Arrival
	Cookies   map[uint32]uint64 // connection id to socket cookie
	Stacks    []Stack           // that Interval and Sample refer to by index
	Parts     []Part            // what has a name inside handlers

	slotBase, queueBase, connBase uint32 // of the next Source
}

// Call is one call as the segment tells it.
type Call struct {
	ID      uint64
	Parent  uint64 // the call it was made in, 0 none
	Method  uint32
	Side    segment.Side // Server or Client
	Outcome segment.Outcome
	Stamps  [segment.Stamps]int64 // of its side, 0 where not taken
	Region  string                // that its handler is in, of a call in flight
	// Cut says that the last stamp is when the call was given up.
	Cut      bool
	Release  int64 // when its worker was free again, 0 where not known
	Conn     uint32
	Queue    uint32
	Worker   uint32 // slot of the role that ran it, 0 none
	Workers  uint16 // how many served its queue
	TIDs     [3]uint32
	Offset   uint64 // of its first byte on the connection, segment.NoOffset unknown
	Batch    uint32
	BatchPos uint16
	BatchOf  uint16
	Goid     uint64
	TraceID  [16]byte
	// ThreadCPU is the CPU time from dequeue to release in nanoseconds, 0 where it
	// was not measured.
	ThreadCPU int64
	// Server is what the reply of a client's call said of it.
	Server      segment.Timing
	ServerKnown bool
}

// Role is a goroutine that serves many calls.
type Role struct {
	Slot  uint32
	Kind  segment.Kind
	Conn  uint32
	Queue uint32
	TID   uint32
}

// Owner says what an interval or a sample belongs to: a call, or a role and
// through it the calls that wait for it. The zero Owner is the process: one of its
// threads, which ran no call, waited for a CPU.
type Owner struct {
	Call uint64 // 0 for a role
	Slot uint32
	Kind segment.Kind
	Conn uint32
}

// Interval is a time that is known exactly.
type Interval struct {
	Owner
	Start, End int64
	Cause      Cause
	Culprit    string
	Stack      int32 // into Evidence.Stacks, -1 none
	// Own says that looking caused it: the profiler had the CPU meanwhile.
	Own bool
}

// Sample is what a goroutine was found doing at one instant.
type Sample struct {
	Owner
	At    int64
	Cause Cause
	Stack int32
}

// Arrival is the instant at which a socket had received so many bytes in all.
type Arrival struct {
	Cookie   uint64
	At       int64
	Received uint64
}
