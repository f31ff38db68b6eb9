package segment

// Version 1 had six stamps in a slot and a record, the server's, and six
// histograms a method; its tables were smaller but stood at offsets that its
// header gives as today's does. A reader turns them into today's.

const histsPerMethodV1 = 6

type slotV1 struct {
	Call, G, Goid            uint64
	Method                   uint32
	Stage                    Stage
	Kind                     Kind
	Flags                    uint16
	StageStart               int64
	Conn, Worker, Queue, TID uint32
	_                        uint64
	Stamps                   [ServerStamps]int64
	Parent                   uint64
	_                        uint64
}

func (o *slotV1) now() Slot {
	s := Slot{
		Call: o.Call, G: o.G, Goid: o.Goid, Method: o.Method, Stage: o.Stage, Kind: o.Kind, Flags: o.Flags,
		Parent: o.Parent, Conn: o.Conn, Worker: o.Worker, Queue: o.Queue, TID: o.TID,
	}
	copy(s.Stamps[:], o.Stamps[:])
	if s.Kind != KindCall {
		s.Stamps[0] = o.StageStart
	}
	return s
}

type recordV1 struct {
	Seq, Call                     uint64
	Method                        uint32
	Outcome                       Outcome
	Flags                         uint8
	Workers                       uint16
	Stamps                        [ServerStamps]int64
	Release                       int64
	Conn, Queue, Worker           uint32
	RecvTID, HandlerTID, WriteTID uint32
	BytesIn, BytesOut             uint32
	Offset                        uint64
	Batch                         uint32
	BatchSize, BatchPos           uint16
	Goid, Parent                  uint64
	TraceID                       [16]byte
	SpanID                        [8]byte
	ThreadCPU                     int64
	_                             [2]uint64
}

func (o *recordV1) now() Record {
	r := Record{
		Seq: o.Seq, Call: o.Call, Parent: o.Parent, Method: o.Method, Outcome: o.Outcome, Workers: o.Workers,
		Release: o.Release, Offset: o.Offset, Queue: o.Queue, Worker: o.Worker, Conn: o.Conn,
		RecvTID: o.RecvTID, HandlerTID: o.HandlerTID, WriteTID: o.WriteTID, BytesIn: o.BytesIn, BytesOut: o.BytesOut,
		Batch: o.Batch, BatchSize: o.BatchSize, BatchPos: o.BatchPos, Goid: o.Goid,
		TraceID: o.TraceID, SpanID: o.SpanID, ThreadCPU: o.ThreadCPU,
	}
	copy(r.Stamps[:], o.Stamps[:])
	return r
}
