package profile

import (
	"cmp"
	"slices"
	"sort"
)

// held is when all of a set of workers were held, and by calls of which methods.
// It is worked out once for a queue, a reader or a writer, so that what each call
// in it waited behind is a look-up, also when thousands wait behind thousands.
type held struct {
	pieces []piece // by start; they do not overlap
	// For each culprit the same, with sums, so that a long wait need not be walked.
	by       map[string]*cumulated
	culprits []string // the keys of by, sorted
}

type piece struct {
	start, end int64
	culprit    string
}

// cumulated are one culprit's pieces; sum[i] is the length of those before i.
type cumulated struct {
	start, end, sum []int64
}

// upTo is how much of it lies before t.
func (c *cumulated) upTo(t int64) int64 {
	i := sort.Search(len(c.start), func(i int) bool { return c.start[i] >= t })
	if i == 0 {
		return 0
	}
	return c.sum[i-1] + min(c.end[i-1], t) - c.start[i-1]
}

// maxPieces is how many pieces one wait is cut into. Beyond it the amounts stay
// exact, but what they stand for is laid out one culprit after the other.
const maxPieces = 256

// newHeld sweeps over the times in which calls held workers. A time in which at
// least all of them were held is divided equally among the calls that held them.
func newHeld(holds []Interval, all int) *held {
	h := &held{by: map[string]*cumulated{}}
	type edge struct {
		at   int64
		hold int
		ends bool
	}
	edges := make([]edge, 0, 2*len(holds))
	for i, iv := range holds {
		if iv.End > iv.Start {
			edges = append(edges, edge{iv.Start, i, false}, edge{iv.End, i, true})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	active, n := map[string]int{}, 0
	last := int64(0)
	for i := 0; i < len(edges); {
		t := edges[i].at
		if n >= max(all, 1) {
			h.divide(last, t, active, n)
		}
		for ; i < len(edges) && edges[i].at == t; i++ {
			c := holds[edges[i].hold].Culprit
			if edges[i].ends {
				n--
				if active[c]--; active[c] == 0 {
					delete(active, c)
				}
			} else {
				n++
				active[c]++
			}
		}
		last = t
	}
	for _, p := range h.pieces {
		c := h.by[p.culprit]
		if c == nil {
			c = &cumulated{}
			h.by[p.culprit] = c
			h.culprits = append(h.culprits, p.culprit)
		}
		sum := int64(0)
		if k := len(c.sum); k > 0 {
			sum = c.sum[k-1] + c.end[k-1] - c.start[k-1]
		}
		c.start, c.end, c.sum = append(c.start, p.start), append(c.end, p.end), append(c.sum, sum)
	}
	slices.Sort(h.culprits)
	return h
}

// divide gives each culprit its share of [a, b), in a fixed order.
func (h *held) divide(a, b int64, active map[string]int, n int) {
	names := make([]string, 0, len(active))
	for c := range active {
		names = append(names, c)
	}
	slices.Sort(names)
	before := 0
	for _, c := range names {
		lo := a + int64(float64(b-a)*float64(before)/float64(n))
		before += active[c]
		hi := a + int64(float64(b-a)*float64(before)/float64(n))
		if before == n {
			hi = b
		}
		if hi <= lo {
			continue
		}
		if k := len(h.pieces); k > 0 && h.pieces[k-1].end == lo && h.pieces[k-1].culprit == c {
			h.pieces[k-1].end = hi
		} else {
			h.pieces = append(h.pieces, piece{lo, hi, c})
		}
	}
}

// within appends what of [a, b) was held, as parts.
func (h *held) within(a, b int64, out []part) []part {
	first := sort.Search(len(h.pieces), func(i int) bool { return h.pieces[i].end > a })
	last := sort.Search(len(h.pieces), func(i int) bool { return h.pieces[i].start >= b })
	if last-first <= maxPieces {
		for _, p := range h.pieces[first:max(first, last)] {
			out = append(out, part{max(p.start, a), min(p.end, b), Behind, p.culprit, -1, rank(Behind), false})
		}
		return out
	}
	at := a
	for _, name := range h.culprits {
		c := h.by[name]
		if ns := c.upTo(b) - c.upTo(a); ns > 0 {
			out = append(out, part{at, at + ns, Behind, name, -1, rank(Behind), false})
			at += ns
		}
	}
	return out
}
