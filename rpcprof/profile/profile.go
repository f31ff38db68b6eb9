package profile

// Cause says why time passed inside a stage. Causes exclude each other.
type Cause string

// The causes. A blocked system call without a name of its own is block.other.
const (
	CPUUser    Cause = "cpu.user"
	CPUKernel  Cause = "cpu.kernel"
	RunQueue   Cause = "runq"
	IRQ        Cause = "irq"
	SoftIRQ    Cause = "softirq"
	BlockDisk  Cause = "block.disk"
	BlockFault Cause = "block.fault"
	BlockLock  Cause = "block.lock"
	BlockNet   Cause = "block.net"
	BlockSleep Cause = "block.sleep"
	BlockOther Cause = "block.other"
	GoLock     Cause = "go.lock"
	GoChan     Cause = "go.chan"
	GoNet      Cause = "go.net"
	GoSleep    Cause = "go.sleep"
	GoGC       Cause = "go.gc"
	GoOther    Cause = "go.other"
	GoSched    Cause = "go.sched"
	Behind     Cause = "behind"
	Unknown    Cause = "unknown"
)

// Frame is one line of a stack, innermost first in a Stack. Inlined calls have
// frames of their own.
type Frame struct {
	Func   string `json:"func"`
	File   string `json:"file,omitempty"` // full path, empty where unknown
	Line   int    `json:"line,omitempty"`
	Kernel bool   `json:"kernel,omitempty"`
	Module string `json:"module,omitempty"` // the file it is of, such as "libc.so.6"; empty for the executable itself
}

// Stack is a list of frames, innermost first.
type Stack []Frame

// Profile is what was found in one window. The JSON field names are stable:
// fields are added, never renamed or dropped. All times are nanoseconds.
type Profile struct {
	Schema      int          `json:"schema"`
	Targets     []Target     `json:"targets"`
	Window      Window       `json:"window"`
	Methods     []Method     `json:"methods"`
	CPU         CPU          `json:"cpu"`
	Runtime     *Runtime     `json:"runtime,omitempty"` // the Go runtime's; nil where it was not read twice
	Threads     []Thread     `json:"threads"`
	Connections []Connection `json:"connections"`
	InFlight    []InFlight   `json:"in_flight"`
	Slowest     []Slow       `json:"slowest"`
	Batch       Batch        `json:"batch"`
	Interrupts  []Interrupt  `json:"interrupts"`
	Host        Host         `json:"host"`
	// Coverage is 1 − (unknown + every .other without a named cause) / wall time.
	Coverage float64  `json:"coverage"`
	Lost     Lost     `json:"lost"`
	Overhead Overhead `json:"overhead"`
	Limits   []string `json:"limits"`

	// Cells partition the wall time of all calls; exporters take them.
	Cells []Cell `json:"-"`
}

// Target is a process that was looked at.
type Target struct {
	PID        int    `json:"pid"`
	Comm       string `json:"comm"`
	Service    string `json:"service,omitempty"`
	Runtime    string `json:"runtime"` // such as "go1.26.8", empty where unknown
	Embedded   bool   `json:"embedded"`
	Privileges string `json:"privileges"` // what was there to look with: "root", "bpf", "same user", "other user"
}

// Window is the time that was looked at.
type Window struct {
	StartNS int64 `json:"start_ns"`
	EndNS   int64 `json:"end_ns"`
}

// Method is one method on one side.
type Method struct {
	Method   string         `json:"method"`
	Side     string         `json:"side"`
	Calls    int            `json:"calls"`
	Outcomes map[string]int `json:"outcomes"`
	// LostIn tells, of the calls that expired or were cancelled, in how many each
	// stage took the most time: {"expired": {"queue": 12}}.
	LostIn          map[string]map[string]int `json:"lost_in,omitempty"`
	P50NS           int64                     `json:"p50_ns"`
	P99NS           int64                     `json:"p99_ns"`
	SlowThresholdNS int64                     `json:"slow_threshold_ns"`
	CPUPerCallNS    int64                     `json:"cpu_per_call_ns"` // mean thread CPU time of the CPUSamples calls of which it was measured
	CPUSamples      int                       `json:"cpu_samples"`
	Typical         Set                       `json:"typical"`
	Slow            Set                       `json:"slow"`
}

// Set is a set of calls of one method and the sums over them.
type Set struct {
	Calls  int                  `json:"calls"`
	WallNS int64                `json:"wall_ns"`
	Stages map[string]StageSums `json:"stages"`
	// Inside is what the handlers did that has a name.
	Inside []Inside `json:"inside,omitempty"`

	// Details break Stages' causes down by what is to blame.
	Details []Detail `json:"-"`
}

// StageSums partition one stage of a set of calls; Causes add up to WallNS.
type StageSums struct {
	WallNS  int64            `json:"wall_ns"`
	Causes  map[string]int64 `json:"causes"`
	Samples int              `json:"samples"` // that divided what no exact interval covers
	// CI95NS is the half width of the 95 % interval of each sampled cause.
	CI95NS map[string]int64 `json:"ci95_ns,omitempty"`
}

// Detail is the part of one stage and cause that one culprit or place accounts for.
type Detail struct {
	Stage    string
	Cause    Cause
	Culprit  string // a method, a process, an interrupt; empty where there is none
	Location string // file:line of the code that waited, empty where unknown
	Stack    Stack
	NS       int64
}

// Cell is wall time of one method's calls by stage, cause and stack.
type Cell struct {
	Method, Side string
	Stage        string
	Cause        Cause
	Culprit      string
	Stack        Stack
	Calls        int64 // calls that have time in it; a call is counted once in each of its cells
	NS           int64
}

// CPU is the target's use of the CPUs over the window.
type CPU struct {
	BusyCores       float64 `json:"busy_cores"`
	UserNSPerCall   int64   `json:"user_ns_per_call"`
	KernelNSPerCall int64   `json:"kernel_ns_per_call"`
	IRQNSPerCall    int64   `json:"irq_ns_per_call"`
	Top2Share       float64 `json:"top2_threads_share"` // of the target's CPU time
}

// Thread is one thread of the target over the window.
type Thread struct {
	TID         int    `json:"tid"`
	Comm        string `json:"comm"`
	Role        string `json:"role"`
	CPUUserNS   int64  `json:"cpu_user_ns"`
	CPUKernelNS int64  `json:"cpu_kernel_ns"`
	RunqNS      int64  `json:"runq_ns"`
	Voluntary   int64  `json:"switches_voluntary"`
	Involuntary int64  `json:"switches_involuntary"`
	Calls       int    `json:"calls"`
}

// Connection is one connection of the target.
type Connection struct {
	ID     uint32 `json:"id"`
	Local  string `json:"local"`
	Remote string `json:"remote"`
	Open   bool   `json:"open"`
	Calls  int    `json:"calls"`
}

// InFlight is a call that had not ended at the end of the window.
type InFlight struct {
	Call       uint64 `json:"call"`
	Method     string `json:"method"`
	Side       string `json:"side"`
	Stage      string `json:"stage"`
	AgeNS      int64  `json:"age_ns"`
	StageAgeNS int64  `json:"stage_age_ns"`
	Goid       uint64 `json:"goid,omitempty"`
	TID        uint32 `json:"tid,omitempty"`    // of the thread that runs it, where calls have threads of their own
	Region     string `json:"region,omitempty"` // the part of the handler that it is in, where the owner marked it
	Location   string `json:"location,omitempty"`
}

// Slow is one of the slowest calls, with its own partition.
type Slow struct {
	Call    uint64                      `json:"call"`
	Method  string                      `json:"method"`
	Side    string                      `json:"side"`
	Outcome string                      `json:"outcome"`
	StartNS int64                       `json:"start_ns"`
	WallNS  int64                       `json:"wall_ns"`
	Stages  map[string]map[string]int64 `json:"stages"`
	TraceID string                      `json:"trace_id,omitempty"`
}

// Interrupt is the time one interrupt took on one CPU.
type Interrupt struct {
	CPU       int    `json:"cpu"`
	Kind      string `json:"kind"` // irq or softirq
	Name      string `json:"name"`
	Count     int64  `json:"count"`
	NS        int64  `json:"ns"`
	OnCallsNS int64  `json:"on_calls_ns"`
}

// Host is the context of the machine.
type Host struct {
	CPUs []HostCPU `json:"cpus"`
}

// HostCPU is one CPU over the window, as shares of it.
type HostCPU struct {
	CPU   int     `json:"cpu"`
	Busy  float64 `json:"busy"`
	Steal float64 `json:"steal"`
}

// Lost counts what was not seen.
type Lost struct {
	Events  uint64 `json:"events"`  // kernel events dropped
	Calls   uint64 `json:"calls"`   // calls not recorded or overwritten before they were read
	Stacks  uint64 `json:"stacks"`  // stacks not taken, over the budget or for want of room
	Samples uint64 `json:"samples"` // samples discarded because the goroutine moved on meanwhile
}

// Overhead is what looking has cost over the window.
type Overhead struct {
	ProfilerCPUNS int64 `json:"profiler_cpu_ns"`
	BPFNS         int64 `json:"bpf_ns"`
}
