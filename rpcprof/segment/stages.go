package segment

// Side tells a method served from a method called, and names what is neither.
type Side uint32

// The sides of a method table's entry.
const (
	Server Side = iota
	Client
	Region // a part of a handler that its owner marked
	Task   // a goroutine that a handler started
	Sides
)

var sideNames = [Sides]string{"server", "client", "region", "task"}

func (s Side) String() string {
	if s < Sides {
		return sideNames[s]
	}
	return "unknown"
}

// Stamp is one instant in a call. Each side has its own, in the order they are taken.
type Stamp uint8

// Stamps is how many a record has room for, whatever its side.
const Stamps = 8

// The stamps of the server side. Arrive, which comes before Recv, is the kernel's
// and not in the segment.
const (
	Recv         Stamp = iota // the request's frame is complete in user memory
	Dequeue                   // a worker takes the request
	Handler                   // user code starts
	Handled                   // user code returned
	Write                     // the reply's bytes enter the write to the socket
	Sent                      // that write returned
	ServerStamps              // how many there are
)

// The stamps of the client side.
const (
	Begun        Stamp = iota // the caller asks for the call
	Acquired                  // it has a connection
	Encoded                   // the request is encoded and waits for the writer
	ClientWrite               // its bytes enter the write to the socket
	ClientSent                // that write returned
	Received                  // the reply's frame is complete in user memory
	Woken                     // the caller runs again
	Returned                  // the reply is decoded and the caller has it
	ClientStamps              // how many there are
)

// Ended is the second and last stamp of a region or a task, after Begun.
const Ended Stamp = 1

// StampsOf is how many stamps a side has.
func StampsOf(s Side) Stamp {
	switch s {
	case Server:
		return ServerStamps
	case Client:
		return ClientStamps
	}
	return Ended + 1
}

// Stage is the time between two stamps: stage k of either side lies between its
// stamps k-1 and k.
type Stage uint8

// The stages of the server side.
const (
	StageRecv    Stage = iota // arrive to recv; known only with kernel evidence
	StageQueue                // recv to dequeue
	StageDecode               // dequeue to handler
	StageHandler              // handler to handled
	StageEncode               // handled to write
	StageWrite                // write to sent
	ServerStages
)

// The stages of the client side.
const (
	_                 Stage = iota
	StageAcquire            // begun to acquired
	StageClientEncode       // acquired to encoded
	StageClientQueue        // encoded to write
	StageClientWrite        // write to sent
	StageWire               // sent to received: the wire and the server
	StageWakeup             // received to woken
	StageClientDecode       // woken to returned
	ClientStages
)

// Stages bounds the stages of any side.
const Stages = ClientStages

var stageNames = [2][Stages]string{
	Server: {"recv", "queue", "decode", "handler", "encode", "write"},
	Client: {"", "acquire", "encode", "queue", "write", "wire+server", "wakeup", "decode"},
}

// StageName is the word used in output for a stage of a side. A region and a task
// have one stage, which bears the side's name.
func StageName(side Side, s Stage) string {
	switch {
	case side > Client:
		return side.String()
	case s < Stages && stageNames[side][s] != "":
		return stageNames[side][s]
	}
	return "unknown"
}

// Outcome says how a call ended.
type Outcome uint8

// The outcomes.
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

// The kinds. What a call or a task is, its method's side tells.
const (
	KindFree   Kind = iota
	KindCall        // one call between its first and its last stamp, or a task
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
