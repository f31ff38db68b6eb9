package debug

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/rpcprof/toolkit/exporters/pprof"
	"github.com/rpcprof/toolkit/rpcprof"
)

// Options of Handler. The zero value is right for most services.
type Options struct {
	// SLO is what calls are to meet: those over it are slow. 0: those over their
	// method's p99 are.
	SLO time.Duration
}

const (
	maxSeconds = 60 // that a request may look for
	profileFor = 5 * time.Second
	collectors = 2 // requests that look at once
)

// Handler gives the page and what belongs to it. It may be called from several
// goroutines at once. A nil Profiler, and one that is off, has a page that says so.
func Handler(p *rpcprof.Profiler, o Options) http.Handler {
	h := &handler{prof: p, o: o, busy: make(chan struct{}, collectors)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", h.page)
	mux.HandleFunc("GET /json", h.json)
	mux.HandleFunc("GET /profile", h.profile)
	return mux
}

type handler struct {
	prof *rpcprof.Profiler
	o    Options
	busy chan struct{} // full when as many look as may
}

// errBusy: as many requests look already as may.
var errBusy = fmt.Errorf("%d others are looking already; try again when they are done", collectors)

// badRequest is what the asker got wrong.
type badRequest struct{ error }

// look collects as a request asks for.
func (h *handler) look(r *http.Request, otherwise time.Duration) (*seen, error) {
	d, err := seconds(r, otherwise)
	if err != nil {
		return nil, badRequest{err}
	}
	select {
	case h.busy <- struct{}{}:
		defer func() { <-h.busy }()
	default:
		return nil, errBusy
	}
	return collect(r.Context(), h.prof, d, h.o)
}

func seconds(r *http.Request, otherwise time.Duration) (time.Duration, error) {
	v := r.URL.Query().Get("seconds")
	if v == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || !(n > 0 && n <= maxSeconds) {
		return 0, fmt.Errorf("seconds=%.20q is not a number above 0 and up to %d", v, maxSeconds)
	}
	return time.Duration(n * float64(time.Second)), nil
}

func (h *handler) page(w http.ResponseWriter, r *http.Request) {
	s, err := h.look(r, 0)
	if err != nil && !errors.Is(err, errNothing) {
		refuse(w, err)
		return
	}
	var b bytes.Buffer
	if err != nil {
		err = nothing.Execute(&b, err.Error())
	} else {
		err = page.Execute(&b, view(s))
	}
	if err != nil {
		refuse(w, err)
		return
	}
	send(w, "text/html; charset=utf-8", b.Bytes())
}

func (h *handler) json(w http.ResponseWriter, r *http.Request) {
	s, err := h.look(r, 0)
	if err != nil {
		refuse(w, err)
		return
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(s.report); err != nil {
		refuse(w, err)
		return
	}
	send(w, "application/json", b.Bytes())
}

func (h *handler) profile(w http.ResponseWriter, r *http.Request) {
	s, err := h.look(r, profileFor)
	if err != nil {
		refuse(w, err)
		return
	}
	var b bytes.Buffer
	if err := pprof.Write(&b, s.report.Profile); err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Disposition", `attachment; filename="rpcprof.pb.gz"`)
	send(w, "application/octet-stream", b.Bytes())
}

// send writes what is complete: an error after the first byte could not be told.
func send(w http.ResponseWriter, kind string, b []byte) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(b)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	_, _ = w.Write(b)
}

func refuse(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch {
	case errors.As(err, new(badRequest)):
		code = http.StatusBadRequest
	case errors.Is(err, errBusy):
		code = http.StatusTooManyRequests
	case errors.Is(err, errNothing):
		code = http.StatusServiceUnavailable
	case errors.Is(err, context.Canceled):
		return // nobody is there to be told
	}
	http.Error(w, err.Error(), code)
}
