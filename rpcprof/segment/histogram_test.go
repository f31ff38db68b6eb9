package segment

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Every duration lies in its bucket, buckets follow one another without a gap,
// and none is wider than 1/16 of where it begins.
func TestBuckets(t *testing.T) {
	for i := range Buckets - 1 {
		lo, hi := BucketBounds(i)
		if BucketFor(lo) != i || BucketFor(hi-1) != i || BucketFor(hi) != i+1 {
			t.Fatalf("bucket %d is [%d, %d), its ends count in %d, %d, %d", i, lo, hi, BucketFor(lo), BucketFor(hi-1), BucketFor(hi))
		}
		if w := hi - lo; w > 16 && w*16 > lo {
			t.Fatalf("bucket %d is [%d, %d): wider than 6.25 %%", i, lo, hi)
		}
	}
	lo, hi := BucketBounds(Buckets - 1)
	if lo != hi || BucketFor(lo) != Buckets-1 || BucketFor(math.MaxInt64) != Buckets-1 {
		t.Fatalf("the last bucket is [%d, %d)", lo, hi)
	}
	if BucketFor(-1) != 0 || BucketFor(math.MinInt64) != 0 {
		t.Fatal("a negative duration does not count as 0")
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		a := rnd.Int64() >> rnd.IntN(63)
		b := rnd.Int64() >> rnd.IntN(63)
		if a <= b && BucketFor(a) > BucketFor(b) {
			t.Fatalf("%d is before %d, but its bucket is after", a, b)
		}
		if lo, hi := BucketBounds(BucketFor(a)); a < lo || hi > lo && a >= hi {
			t.Fatalf("%d is not in its bucket [%d, %d)", a, lo, hi)
		}
	}
}
