package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/rpcprof/toolkit/rpcprof"
)

// Handler serves a call. req is valid until it returns; it may return req or a
// part of it. ctx ends at the caller's deadline and when the connection breaks.
// An error becomes the caller's RemoteError, and so does a panic, whose stack is
// logged; runtime.Goexit ends the goroutine that serves others too. With workers, a handler runs beside
// others; without, beside those of other connections only.
type Handler func(ctx context.Context, req []byte) ([]byte, error)

// ServerConfig says how a Server works. The zero value is usable.
type ServerConfig struct {
	// Profiler records the calls; nil: they are not recorded.
	Profiler *rpcprof.Profiler
	// Workers is how many handlers run at once, over all connections. 0: handlers
	// run on the goroutine that reads their connection.
	Workers int
	// QueueLen bounds the requests that wait for a worker, default 1024. When that
	// many wait, connections are not read (back-pressure).
	QueueLen int
	// MaxFrame bounds a frame in bytes, default 1 MiB, within 2 KiB and 1 GiB. A
	// longer request ends its connection, a longer reply becomes an error.
	MaxFrame int
}

// method is a registered method.
type method struct {
	handler Handler
	prof    *rpcprof.Method
}

// Server serves calls on any number of listeners.
type Server struct {
	cfg     ServerConfig
	methods map[string]*method
	queue   chan *job      // nil: inline
	waiting *rpcprof.Queue // the same queue as the Profiler sees it

	mu        sync.Mutex
	serving   bool
	closed    bool
	listeners map[net.Listener]struct{}
	conns     map[*serverConn]struct{}
	connWG    sync.WaitGroup
	workerWG  sync.WaitGroup
}

// NewServer makes a server. It starts nothing before Serve.
func NewServer(cfg ServerConfig) *Server {
	if cfg.QueueLen <= 0 {
		cfg.QueueLen = 1024
	}
	cfg.MaxFrame = limitOf(cfg.MaxFrame)
	s := &Server{
		cfg:       cfg,
		methods:   map[string]*method{},
		listeners: map[net.Listener]struct{}{},
		conns:     map[*serverConn]struct{}{},
	}
	if cfg.Workers > 0 {
		s.queue = make(chan *job, cfg.QueueLen)
		s.waiting = cfg.Profiler.Queue()
	}
	return s
}

// Handle registers the handler of a method. It panics after Serve, on a name
// that is empty, longer than MaxName or registered already, and on a nil
// handler: these are mistakes in the program.
func (s *Server) Handle(name string, h Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.serving:
		panic("pipeline: Handle after Serve")
	case name == "" || len(name) > MaxName:
		panic(fmt.Sprintf("pipeline: method name of %d bytes", len(name)))
	case h == nil:
		panic("pipeline: nil handler for " + name)
	case s.methods[name] != nil:
		panic("pipeline: second handler for " + name)
	}
	s.methods[name] = &method{handler: h, prof: s.cfg.Profiler.Method(name)}
}

// Serve accepts connections and serves them until Close; then it returns
// ErrServerClosed. It returns earlier when l fails for good; connections it has
// accepted are served on. It closes l. It may be called for several listeners.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	if !s.begin(l) {
		return ErrServerClosed
	}
	defer s.forget(l)
	var pause time.Duration
	for {
		nc, err := l.Accept()
		if err == nil {
			pause = 0
			s.start(nc)
			continue
		}
		if s.isClosed() {
			return ErrServerClosed
		}
		if !passing(err) {
			return fmt.Errorf("pipeline: accept: %w", err)
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		time.Sleep(pause)
	}
}

// passing says whether an error of Accept goes away by itself: a peer that left
// too early, or descriptors that are used up at the moment.
func passing(err error) bool {
	return errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// begin enters a listener, and starts the workers with the first.
func (s *Server) begin(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.listeners[l] = struct{}{}
	if s.serving {
		return true
	}
	s.serving = true
	for range s.cfg.Workers {
		s.workerWG.Go(s.work)
	}
	return true
}

func (s *Server) forget(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// start serves a connection on goroutines of its own.
func (s *Server) start(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = nc.Close()
		return
	}
	c := newServerConn(s, nc)
	s.conns[c] = struct{}{}
	s.connWG.Go(func() {
		c.run()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
	})
}

// Close closes the listeners and connections, cancels the contexts of running
// handlers and waits until the server's goroutines have ended, so it must not be
// called from a handler. It returns what closing the listeners returned, and nil
// when called again.
func (s *Server) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	var errs []error
	if first {
		for l := range s.listeners {
			errs = append(errs, l.Close())
		}
	}
	for c := range s.conns {
		c.fail()
	}
	s.mu.Unlock()
	s.connWG.Wait()
	if first && s.queue != nil {
		close(s.queue) // only readers send to it, and they have ended
	}
	s.workerWG.Wait()
	return errors.Join(errs...)
}
