//go:build linux

package cpp

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/rpcprof/toolkit/rpcprof/segment"
)

// The header is valid in both languages under every compiler that is here.
func TestHeaderCompiles(t *testing.T) {
	for _, c := range [][]string{
		{"gcc", "-std=c11", "-x", "c"}, {"g++", "-std=c++17", "-x", "c++"},
		{"clang-19", "-std=c11", "-x", "c"}, {"clang-19", "-std=c++17", "-x", "c++"},
	} {
		t.Run(c[0]+c[1], func(t *testing.T) {
			args := append(append(c[1:], warnings...), "-fsyntax-only", "-I", ".", "-")
			run(t, "#include \"rpcprof.h\"\n", compiler(t, c[0]), args...)
		})
	}
}

// build makes a program of C text, for which the header is there.
func build(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "probe.c"), filepath.Join(dir, "probe")
	if err := os.WriteFile(src, []byte("#include \"rpcprof.h\"\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "", compiler(t, "gcc"), append(warnings, "-std=c11", "-I", ".", "-o", bin, src)...)
	return bin
}

// snake gives the C name of a Go field: StartNS is start_ns, GStatus is g_status.
func snake(name string) string {
	var out strings.Builder
	r := []rune(name)
	for i, c := range r {
		lower := i+1 < len(r) && unicode.IsLower(r[i+1])
		if i > 0 && unicode.IsUpper(c) && (unicode.IsLower(r[i-1]) || lower) {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(c))
	}
	return out.String()
}

// Every field of a Go struct is in the C struct under its name, at its place, and the
// C struct is no longer.
func TestLayoutIsTheSame(t *testing.T) {
	var text, want strings.Builder
	text.WriteString("int main(void) {\n")
	for name, v := range map[string]any{
		"section": segment.Section{}, "header": segment.Header{}, "method": segment.Method{}, "conn": segment.Conn{},
		"slot": segment.Slot{}, "index_entry": segment.IndexEntry{}, "bucket": segment.Bucket{},
		"shard_head": segment.ShardHead{}, "record": segment.Record{}, "slow_set": segment.SlowSet{}, "histogram": segment.Histogram{},
	} {
		typ := reflect.TypeOf(v)
		fmt.Fprintf(&text, "printf(\"%s %%zu\\n\", sizeof(struct rpcprof_%s));\n", name, name)
		fmt.Fprintf(&want, "%s %d\n", name, typ.Size())
		if typ.Kind() != reflect.Struct {
			continue
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			if f.Name == "_" {
				continue
			}
			c := snake(f.Name)
			fmt.Fprintf(&text, "printf(\"%s.%s %%zu %%zu\\n\", offsetof(struct rpcprof_%s, %s), sizeof(((struct rpcprof_%s *)0)->%s));\n", name, c, name, c, name, c)
			fmt.Fprintf(&want, "%s.%s %d %d\n", name, c, f.Offset, f.Type.Size())
		}
	}
	for name, v := range map[string]uint64{
		"MAGIC": segment.Magic, "VERSION": segment.Version, "REVISION": segment.Revision, "HEADER_SIZE": segment.HeaderSize,
		"BUCKET_ENTRIES": segment.BucketEntries, "HISTOGRAM_WORDS": segment.HistogramWords,
		"HISTS_PER_METHOD": uint64(segment.HistsPerMethod), "HIST_TOTAL": uint64(segment.HistTotal),
		"SLOW_KEPT": segment.SlowKept, "SLOW_MINUTES": segment.SlowMinutes, "MAX_SECTIONS": segment.MaxSections,
		"MAX_FILE_SIZE": segment.MaxFileSize, "MAX_METHODS": segment.MaxMethods, "MAX_CONNS": segment.MaxConns,
		"MAX_SLOTS": segment.MaxSlots, "MAX_SHARDS": segment.MaxShards, "MAX_RING": segment.MaxRing,
		"CLOCK_MONOTONIC": segment.ClockMonotonic, "NO_OFFSET": segment.NoOffset, "FLAG_GOROUTINES": segment.FlagGoroutines,
		"FLAG_CLOSED": segment.FlagClosed, "FLAG_THREADS": segment.FlagThreads, "STAMPS": uint64(segment.Stamps),
		"SERVER": uint64(segment.Server), "CLIENT": uint64(segment.Client), "REGION": uint64(segment.Region), "TASK": uint64(segment.Task),
		"RECV": uint64(segment.Recv), "DEQUEUE": uint64(segment.Dequeue), "HANDLER": uint64(segment.Handler),
		"HANDLED": uint64(segment.Handled), "WRITE": uint64(segment.Write), "SENT": uint64(segment.Sent), "SERVER_STAMPS": uint64(segment.ServerStamps),
		"STAGE_RECV": uint64(segment.StageRecv), "STAGE_QUEUE": uint64(segment.StageQueue), "STAGE_DECODE": uint64(segment.StageDecode),
		"STAGE_HANDLER": uint64(segment.StageHandler), "STAGE_ENCODE": uint64(segment.StageEncode), "STAGE_WRITE": uint64(segment.StageWrite),
		"UNFINISHED": uint64(segment.Unfinished), "OK": uint64(segment.OK), "ERROR": uint64(segment.Error), "CANCELLED": uint64(segment.Cancelled),
		"EXPIRED": uint64(segment.Expired), "SHED": uint64(segment.Shed), "OUTCOMES": uint64(segment.Outcomes),
		"KIND_FREE": uint64(segment.KindFree), "KIND_CALL": uint64(segment.KindCall), "KIND_READER": uint64(segment.KindReader),
		"KIND_WRITER": uint64(segment.KindWriter), "KIND_WORKER": uint64(segment.KindWorker),
	} {
		fmt.Fprintf(&text, "printf(\"%s %%llu\\n\", (unsigned long long)RPCPROF_%s);\n", name, name)
		fmt.Fprintf(&want, "%s %d\n", name, v)
	}
	text.WriteString("return 0; }\n")
	got := strings.Split(run(t, "", build(t, text.String())), "\n")
	for i, w := range strings.Split(want.String(), "\n") {
		if got[i] != w {
			t.Errorf("C has %q where Go has %q", got[i], w)
		}
	}
}

// A duration is in the same bucket of a histogram, a thread in the same of the index.
func TestBucketsAreTheSame(t *testing.T) {
	bin := build(t, `int main(void) {
	long long v; unsigned bits;
	while (scanf("%lld %u", &v, &bits) == 2)
		printf("%u %llu\n", rpcprof_bucket_for(v), (unsigned long long)rpcprof_bucket_of((uint64_t)v, bits));
	return 0; }`)
	var in, want strings.Builder
	add := func(v int64, bits uint32) {
		fmt.Fprintln(&in, v, bits)
		fmt.Fprintln(&want, segment.BucketFor(v), segment.BucketOf(uint64(v), bits))
	}
	for i := range int64(5000) {
		add(i-100, uint32(1+i%20))
	}
	for i := range segment.Buckets {
		lo, hi := segment.BucketBounds(i)
		for _, v := range []int64{lo - 1, lo, hi - 1, hi} {
			add(v, 12)
		}
	}
	for range 5000 {
		add(rand.Int64()>>rand.IntN(63), 12)
	}
	if got := run(t, in.String(), bin); got != want.String() {
		t.Errorf("buckets differ")
	}
}
