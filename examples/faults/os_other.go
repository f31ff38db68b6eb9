//go:build !linux

package faults

import (
	"context"
	"errors"
	"time"
)

// Pin binds all threads of this process to the CPUs: on Linux alone.
func Pin(cpus ...int) error { return errors.ErrUnsupported }

func becomeHog(HogOptions) (bool, error) { return false, errors.ErrUnsupported }

func mayRaise() bool { return false }

func cpuTime() time.Duration { return 0 }

type pacer struct{}

func newPacer() *pacer { return &pacer{} }

func (*pacer) close() {}

func (*pacer) until(ctx context.Context, then time.Time) bool {
	time.Sleep(time.Until(then))
	return ctx.Err() == nil
}
