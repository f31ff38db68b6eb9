package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rpcprof/toolkit/rpcprof/profile"
	"github.com/rpcprof/toolkit/rpcprof/segment"
)

type topCmd struct {
	PID   int           `arg:"" name:"pid" help:"The process to look at."`
	JSON  bool          `name:"json" help:"Write the calls as JSON, once."`
	Once  bool          `help:"Print once instead of refreshing; so it is when output is no terminal."`
	Every time.Duration `default:"1s" help:"How often to refresh."`
	Limit int           `default:"20" help:"How many calls to show."`
}

func (t *topCmd) Run(ctx context.Context, con *console) error {
	if t.Every <= 0 || t.Limit <= 0 {
		return usageError{"--every and --limit must be above zero"}
	}
	files, err := segment.Find(t.PID)
	if len(files) == 0 {
		switch {
		case err != nil:
			return fmt.Errorf("cannot look into process %d: %w", t.PID, err)
		default:
			return fmt.Errorf("process %d does not embed rpcprof, so its calls are not known", t.PID)
		}
	}
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	for {
		calls, err := inFlight(files)
		if err != nil {
			return fmt.Errorf("process %d: %w", t.PID, err)
		}
		switch {
		case t.JSON:
			return writeJSON(con.out, map[string]any{"schema": 1, "pid": t.PID, "in_flight": calls})
		case t.Once || !con.outTTY:
			fmt.Fprint(con.out, t.page(calls))
			return nil
		}
		fmt.Fprint(con.out, "\x1b[H\x1b[2J"+t.page(calls))
		if !sleep(ctx, t.Every) {
			return nil
		}
		if unix.Kill(t.PID, 0) == unix.ESRCH {
			return fmt.Errorf("process %d has ended", t.PID)
		}
	}
}

func inFlight(files []*segment.File) ([]profile.InFlight, error) {
	out := []profile.InFlight{}
	for _, f := range files {
		methods, err := f.Methods()
		if err != nil {
			return nil, err
		}
		slots, err := f.Slots()
		if err != nil {
			return nil, err
		}
		now := monotonicNow()
		h := f.Header()
		for i := range slots {
			if s := &slots[i]; s.Kind == segment.KindCall && int(s.Method) < len(methods) {
				out = append(out, slotInFlight(&h, methods, &s.Slot, now))
			}
		}
	}
	slices.SortFunc(out, func(a, b profile.InFlight) int { return cmp.Compare(b.AgeNS, a.AgeNS) })
	return out, nil
}

// monotonicNow is the segments' clock.
func monotonicNow() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // fails for no clock that every kernel has
	return ts.Nano()
}

func slotInFlight(h *segment.Header, methods []segment.Method, s *segment.Slot, now int64) profile.InFlight {
	m := &methods[s.Method]
	c := profile.InFlight{
		Call: s.Call, Method: m.NameString(), Side: m.Side.String(), Stage: segment.StageName(m.Side, s.Stage),
		AgeNS: max(0, now-s.Stamps[0]), StageAgeNS: max(0, now-s.Since()),
	}
	switch {
	case s.G == 0: // the id is of the one that had it last
	case h.Flags&segment.FlagThreads == 0:
		c.Goid = s.Goid
	default:
		c.TID = uint32(s.Goid)
	}
	if r := int(s.Region) - 1; r >= 0 && r < len(methods) {
		c.Region = methods[r].NameString()
	}
	return c
}

// page is the view: how many calls are in which stage, then the oldest.
func (t *topCmd) page(calls []profile.InFlight) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d calls in flight in process %d\n\n", len(calls), t.PID)
	if len(calls) == 0 {
		return b.String()
	}
	type key struct{ method, stage string }
	n := map[key]int{}
	for _, c := range calls {
		n[key{c.Method, c.Stage}]++
	}
	keys := make([]key, 0, len(n))
	for k := range n {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(n[b], n[a]), cmp.Compare(a.method, b.method), cmp.Compare(a.stage, b.stage))
	})
	fmt.Fprintf(&b, "%-50s %-11s %9s\n", "METHOD", "STAGE", "CALLS")
	for _, k := range keys[:min(len(keys), t.Limit)] {
		fmt.Fprintf(&b, "%-50s %-11s %9d\n", cut(k.method, 50), k.stage, n[k])
	}
	region := ""
	if slices.ContainsFunc(calls, func(c profile.InFlight) bool { return c.Region != "" }) {
		region = "  REGION"
	}
	fmt.Fprintf(&b, "\n%-50s %-11s %9s %9s %9s%s\n", "OLDEST", "STAGE", "AGE", "IN STAGE", "RUNS ON", region)
	for _, c := range calls[:min(len(calls), t.Limit)] {
		line := fmt.Sprintf("%-50s %-11s %9s %9s %9s  %s", cut(c.Method, 50), c.Stage, age(c.AgeNS), age(c.StageAgeNS), runsOn(c), cut(c.Region, 24))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// runsOn says which goroutine or thread has a call.
func runsOn(c profile.InFlight) string {
	switch {
	case c.Goid != 0:
		return fmt.Sprintf("g%d", c.Goid)
	case c.TID != 0:
		return fmt.Sprintf("t%d", c.TID)
	}
	return "-"
}

func cut(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n+3:]
	}
	return s
}

func age(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}
