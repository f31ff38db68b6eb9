package segment

import "math/bits"

// Histograms kept for each method: those of its stages, stage k in place k-1; for a
// client's calls the server's part where the reply told it; and the whole, from the
// first stamp to the last. Those that a side does not have stay empty.
const (
	HistServer     = int(ClientStages) - 1
	HistTotal      = HistServer + 1
	HistsPerMethod = HistTotal + 1
)

// Histogram is log-linear: sixteen buckets to a power of two, in units of 16 ns,
// so a value is known within 6.25 %. Word 0 is the sum in nanoseconds; words
// 1.. are the buckets.
type Histogram [HistogramWords]uint64

// Buckets is how many buckets a Histogram has; the last one takes all that is longer.
const Buckets = HistogramWords - 1

const (
	histUnitShift = 4
	histSubBits   = 4
)

// BucketFor gives the bucket of a duration in nanoseconds; negative ones count as 0.
func BucketFor(ns int64) int {
	v := uint64(max(ns, 0)) >> histUnitShift
	// Below 16 units each has a bucket; above, e is how far v must be shifted to lie
	// within [16, 32), which gives sixteen buckets to each e.
	e := uint(bits.Len64(v|1<<histSubBits)) - histSubBits - 1
	return min(int(e<<histSubBits+uint(v>>e)), Buckets-1)
}

// BucketBounds gives the half-open range of a bucket in nanoseconds. The last
// bucket's upper bound is its lower bound: it has none.
func BucketBounds(i int) (lo, hi int64) {
	lo = bucketLow(i)
	if i >= Buckets-1 {
		return lo, lo
	}
	return lo, bucketLow(i + 1)
}

func bucketLow(i int) int64 {
	if i < 1<<histSubBits {
		return int64(i) << histUnitShift
	}
	e := i>>histSubBits - 1
	m := i&(1<<histSubBits-1) | 1<<histSubBits
	return int64(m) << uint(e+histUnitShift)
}
