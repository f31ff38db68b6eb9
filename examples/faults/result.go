package faults

import (
	"slices"
	"time"
)

// LoadResult is what came of a load. Times are nanoseconds in JSON.
type LoadResult struct {
	Fault     string        `json:"fault"`
	Calls     int64         `json:"calls"`  // that were answered
	Errors    int64         `json:"errors"` // those that were not, or with an error
	Hits      int64         `json:"hits"`   // of Calls, those that are hit
	P50       time.Duration `json:"p50_ns"` // of all Calls
	P99       time.Duration `json:"p99_ns"`
	Max       time.Duration `json:"max_ns"`
	PlainP50  time.Duration `json:"plain_p50_ns"` // of those that are not hit
	PlainP99  time.Duration `json:"plain_p99_ns"`
	HitP50    time.Duration `json:"hit_p50_ns"` // of those that are
	HitP99    time.Duration `json:"hit_p99_ns"`
	Slow      float64       `json:"slow"` // share of the calls not hit that took SlowTime
	PerSecond float64       `json:"per_second"`
	Wall      time.Duration `json:"wall_ns"`
	CPU       time.Duration `json:"cpu_ns"` // of the load's process

	// FirstError is the text of one of the errors.
	FirstError string `json:"first_error,omitempty"`
}

// SlowTime is what no call that is not hit takes if it is not made to wait.
const SlowTime = 4 * time.Millisecond

// tally is what one caller has seen.
type tally struct {
	plain, hit []time.Duration
	errors     int64
	err        error
}

func (t *tally) add(d time.Duration, hit bool, err error) {
	switch {
	case err != nil:
		t.errors++
		t.err = err
	case hit:
		t.hit = append(t.hit, d)
	default:
		t.plain = append(t.plain, d)
	}
}

func sum(tallies []*tally, wall time.Duration) LoadResult {
	r := LoadResult{Wall: wall}
	var plain, hit []time.Duration
	for _, t := range tallies {
		plain, hit = append(plain, t.plain...), append(hit, t.hit...)
		r.Errors += t.errors
		if t.err != nil {
			r.FirstError = t.err.Error()
		}
	}
	both := slices.Concat(plain, hit)
	slices.Sort(plain)
	slices.Sort(hit)
	slices.Sort(both)
	r.Calls, r.Hits = int64(len(both)), int64(len(hit))
	r.P50, r.P99, r.Max = quantile(both, 0.5), quantile(both, 0.99), quantile(both, 1)
	r.PlainP50, r.PlainP99 = quantile(plain, 0.5), quantile(plain, 0.99)
	r.HitP50, r.HitP99 = quantile(hit, 0.5), quantile(hit, 0.99)
	if i, _ := slices.BinarySearch(plain, SlowTime); len(plain) > 0 {
		r.Slow = float64(len(plain)-i) / float64(len(plain))
	}
	r.PerSecond = float64(r.Calls) / wall.Seconds()
	return r
}

// quantile gives a quantile of sorted times, or 0 if there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
