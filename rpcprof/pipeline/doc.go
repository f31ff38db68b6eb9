// Package pipeline is an RPC transport on which many calls share a connection:
// requests follow each other without waiting, and replies come in any order. It
// takes all of package rpcprof's stamps.
//
// A server runs its handlers on a bounded pool of workers, or, with none, on
// the goroutine that reads the connection: that saves two switches a call and
// lets a slow handler delay all requests behind it.
//
//	srv := pipeline.NewServer(pipeline.ServerConfig{Profiler: prof, Workers: 8})
//	srv.Handle("orders.Orders/Get", get)
//	err := srv.Serve(listener)
//
// # What a connection costs
//
// Each connection has one goroutine that reads and one that writes, on both
// sides. A read takes what is there, up to the buffer's 64 KB, and all requests
// cut from it share its time as their recv stamp. A write takes all replies that
// have gathered since the last one, in one system call, and they share its begin
// and end as their write and sent stamps. Nothing waits for company: a lone call
// is written at once.
//
// # Back-pressure
//
// Nothing grows without bound. A full queue of the pool stops the reader; when
// 4,096 replies or 4 MB wait for a connection's writer, workers with another
// reply for it wait too, and their calls do not count as released meanwhile. A
// peer that does not read its replies can thus hold workers; it is closing the
// connection that frees them.
//
// # Protocol
//
// A connection carries frames, all integers little endian. A frame begins with
//
//	0   u32  length of what follows this field, in bytes
//	4   u64  sequence id: the client's choice, the reply repeats it
//	12  u8   kind: 1 request, 2 reply, 3 error; bit 7 (0x80): with times
//
// A request, which only a client sends, goes on with
//
//	13    u16  n, length of the method's name, 1 to 255
//	15    n    the name, such as "orders.Orders/Get"
//	15+n  u64  nanoseconds left until the deadline, below 2^63; 0: none
//	23+n       payload, up to the frame's end
//
// A reply, which only a server sends, has its payload from byte 13. An error
// has
//
//	13  u8   code, see Code
//	14       message, up to the frame's end
//
// A request with bit 7 of its kind set asks for the server's times; a server that
// records the call sets it in the reply or error too, which then has from byte 13, before
// all else, 24 bytes:
//
//	13  u64  the call's id at the server
//	21  u32  its queue, decode, handler and encode stages, in steps of 16 ns each;
//	         they begin when the request was complete and end where the reply is written
//
// The deadline counts from when the frame is complete at the server, so the two
// clocks need not agree. Sequence ids must differ among the calls in flight on a
// connection. There is no handshake and no cancellation: a reply that nobody
// waits for is dropped. A frame that is longer than the receiver's limit,
// shorter than its fields, of a kind that the sender may not send, or with a
// name or deadline out of range ends the connection.
package pipeline
