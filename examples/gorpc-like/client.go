package main

import (
	"bufio"
	"errors"
	"net"
	"sync"
)

// client is the calling side of a connection: calls share it, and are matched with
// their replies by number. It is not profiled.
type client struct {
	nc   net.Conn
	done chan struct{} // closed when the reader has ended

	mu      sync.Mutex // also keeps requests whole and in the order of their numbers
	seq     uint64
	waiting map[uint64]chan<- reply // nil once the connection is broken
}

type reply struct {
	payload []byte
	err     error
}

var errClosed = errors.New("connection closed")

func dial(addr string) (*client, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &client{nc: nc, done: make(chan struct{}), waiting: map[uint64]chan<- reply{}}
	go c.read()
	return c, nil
}

// call calls a method and waits for its reply.
func (c *client) call(name string, payload []byte) ([]byte, error) {
	if len(name) > 255 || headSize+len(name)+len(payload) > maxFrame {
		return nil, errors.New("request too large")
	}
	ch := make(chan reply, 1)
	if err := c.send(name, payload, ch); err != nil {
		return nil, err
	}
	r := <-ch
	return r.payload, r.err
}

// send writes a request.
func (c *client) send(name string, payload []byte, ch chan<- reply) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		return errClosed
	}
	c.seq++
	c.waiting[c.seq] = ch
	_, err := c.nc.Write(encodeRequest(c.seq, name, payload))
	if err != nil {
		delete(c.waiting, c.seq)
	}
	return err
}

// read gives replies to those who wait for them, until the connection breaks.
func (c *client) read() {
	defer close(c.done)
	in := bufio.NewReaderSize(c.nc, maxFrame)
	for {
		b, err := readFrame(in)
		if err != nil {
			break
		}
		seq, payload, err := parseReply(b)
		c.mu.Lock()
		ch := c.waiting[seq]
		delete(c.waiting, seq)
		c.mu.Unlock()
		if ch != nil {
			ch <- reply{payload, err}
		}
	}
	_ = c.nc.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range c.waiting {
		ch <- reply{nil, errClosed}
	}
	c.waiting = nil
}

func (c *client) close() {
	_ = c.nc.Close()
	<-c.done
}
