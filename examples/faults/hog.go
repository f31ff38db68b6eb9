package faults

import (
	"context"
	"runtime"
	"time"
)

// HogOptions are the options of Hog.
type HogOptions struct {
	// CPU is the one to burn on.
	CPU int
	// Every burns so much of the time that nearly every call is delayed.
	Every bool
}

// HogName is what a hog's process and the thread that burns are called.
const HogName = "hog"

// hogsUnprivileged is how many hogs it takes when they may not raise their
// priority: a thread that wakes takes the CPU from one hog soon, but has its
// turn after several.
const hogsUnprivileged = 6

// HogProcesses gives how many processes have to call Hog: one if a process may
// raise its priority here, or several.
func HogProcesses() int {
	if mayRaise() {
		return 1
	}
	return hogsUnprivileged
}

// Hog burns a CPU for HogBurst of each HogPeriod until ctx is done. The bursts of
// several hogs coincide. It names this process HogName, and gives the thread that
// burns real-time priority if that is permitted, so that nothing else runs on the
// CPU during a burst.
func Hog(ctx context.Context, o HogOptions) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its priority
		result <- hog(ctx, o)
	}()
	return <-result
}

func hog(ctx context.Context, o HogOptions) error {
	raised, err := becomeHog(o)
	if err != nil {
		return err
	}
	p := newPacer()
	defer p.close()
	burst, period := HogBurst, HogPeriod
	if o.Every {
		// Real-time priority all the time would leave the service nothing.
		burst, period = EveryBurst, EveryPeriod
	}
	for ctx.Err() == nil {
		if o.Every && !raised { // others have their turns all the same
			burn(ctx, time.Now().Add(period))
			continue
		}
		// All hogs agree on the clock, and so on when the next burst is.
		start := time.Now().Truncate(period).Add(period)
		start = time.Now().Add(time.Until(start)) // monotonic from here on
		if !p.until(ctx, start) {
			return nil
		}
		burn(ctx, start.Add(burst))
	}
	return nil
}

// burn uses the CPU until then.
func burn(ctx context.Context, then time.Time) {
	x := uint64(1)
	for time.Now().Before(then) && ctx.Err() == nil {
		for range 2000 {
			x = x*6364136223846793005 + 1442695040888963407
		}
	}
	runtime.KeepAlive(x) // the work must not be left out
}
