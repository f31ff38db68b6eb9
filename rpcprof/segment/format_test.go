package segment

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var documented = map[string]reflect.Type{}

func init() {
	for _, v := range []any{
		Header{}, Section{}, Method{}, Conn{}, Slot{}, IndexEntry{}, ShardHead{}, Record{}, SlowSet{},
		RuntimeSample{}, Control{}, slotV1{}, recordV1{},
	} {
		t := reflect.TypeOf(v)
		documented[t.Name()] = t
	}
}

// limits are the constants whose values FORMAT.md gives.
var limits = map[string]int64{
	"MaxFileSize": MaxFileSize, "MaxMethods": MaxMethods, "MaxConns": MaxConns, "MaxSlots": MaxSlots, "MaxShards": MaxShards,
	"MaxRing": MaxRing, "MaxFailed": MaxFailed, "MaxSections": MaxSections, "RuntimeKept": RuntimeKept, "SlowKept": SlowKept,
	"SlowMinutes": SlowMinutes, "BucketEntries": BucketEntries, "HistogramWords": HistogramWords,
	"HistsPerMethod": int64(HistsPerMethod), "Stamps": Stamps,
}

// sizes are those that its text gives as `Name` is n.
var sizes = map[string]int{
	"HeaderSize": HeaderSize, "MethodSize": MethodSize, "ConnSize": ConnSize, "SlotSize": SlotSize, "BucketSize": BucketSize,
	"ShardHeadSize": ShardHeadSize, "RecordSize": RecordSize, "SlowSetSize": SlowSetSize, "RuntimeSize": RuntimeSize,
}

func formatDoc(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// FORMAT.md has every struct of the format, and of it every field in order, reserved
// ones too, with the offset, size and sign that the Go struct has.
func TestFormatStructs(t *testing.T) {
	seen := map[string]int{} // rows
	at := ""
	for n, line := range strings.Split(formatDoc(t), "\n") {
		if name := strings.TrimLeft(line, "# "); strings.HasPrefix(line, "#") {
			at = name
			continue
		}
		cells := strings.Split(line, "|")
		typ := documented[at]
		if typ == nil || len(cells) < 6 {
			continue
		}
		off, err := strconv.Atoi(strings.TrimSpace(cells[1]))
		if err != nil {
			continue // a heading
		}
		got := fmt.Sprintf("%d %s %s", off, strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3]))
		want := fmt.Sprintf("%d %d _", typ.Size(), HeaderSize-int(typ.Size())) // the rest of the header's page
		if i := seen[at]; i < typ.NumField() {
			f := typ.Field(i)
			want = fmt.Sprintf("%d %d %s", f.Offset, f.Type.Size(), f.Name)
			if kind := strings.TrimSpace(cells[4]); f.Name != "_" && kind != kindOf(f.Name, f.Type) {
				t.Errorf("FORMAT.md:%d: %s.%s is %s, not %s", n+1, at, f.Name, kindOf(f.Name, f.Type), kind)
			}
		} else if at != "Header" {
			want = "no more fields"
		}
		if got != want {
			t.Errorf("FORMAT.md:%d: %s has %q, the struct %q", n+1, at, got, want)
		}
		seen[at]++
	}
	for name, typ := range documented {
		if seen[name] < typ.NumField() {
			t.Errorf("FORMAT.md has %d fields of %s, the struct %d", seen[name], name, typ.NumField())
		}
	}
}

// kindOf is a field's type as FORMAT.md names it.
func kindOf(name string, t reflect.Type) string {
	switch t.Kind() {
	case reflect.Array:
		switch of := kindOf("", t.Elem()); {
		case of != "u8":
			return fmt.Sprintf("%s × %d", of, t.Len())
		case strings.HasSuffix(name, "ID"):
			return "bytes"
		}
		return "text"
	case reflect.Struct:
		return t.Name()
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("i%d", 8*t.Size())
	}
	return fmt.Sprintf("u%d", 8*t.Size())
}

func TestFormatConstants(t *testing.T) {
	doc := formatDoc(t)
	for name, want := range limits {
		if !strings.Contains(doc, fmt.Sprintf("| %s | %d |", name, want)) {
			t.Errorf("FORMAT.md does not say that %s is %d", name, want)
		}
	}
	for name, want := range sizes {
		m := regexp.MustCompile("`" + name + "` is ([0-9]+)[.:]").FindStringSubmatch(doc)
		if m == nil || m[1] != strconv.Itoa(want) {
			t.Errorf("FORMAT.md says of %s %v, not %d", name, m, want)
		}
	}
	for _, want := range []string{
		fmt.Sprintf("Version %d, revision %d.", Version, Revision),
		fmt.Sprintf("%#x, the bytes `RPCPROF1`", uint64(Magic)), fmt.Sprintf("%#x, the bytes `RPCPCTL1`", uint64(ControlMagic)),
		fmt.Sprintf("named `%s`, `ControlSize` (%d)", ControlName, ControlSize), fmt.Sprintf("named `%s`", TraceName),
		fmt.Sprintf("name `%s`", FileName), fmt.Sprintf("1 to %d |", MaxTraceMS), fmt.Sprintf("%d s after", TraceEveryMS/1000),
		fmt.Sprintf("%d MiB", MaxTraceBytes>>20), fmt.Sprintf("steps of %d ns", TimingUnit),
	} {
		if !strings.Contains(doc, want) {
			t.Errorf("FORMAT.md does not say %q", want)
		}
	}
	words := func(names ...fmt.Stringer) {
		t.Helper()
		var out []string
		for i, n := range names {
			out = append(out, fmt.Sprintf("%d %s", i, n))
		}
		if want := strings.Join(out, ", "); !strings.Contains(doc, want) {
			t.Errorf("FORMAT.md does not say %q", want)
		}
	}
	words(Server, Client, Region, Task)
	for side, stages := range map[Side]Stage{Server: ServerStages, Client: ClientStages} {
		var names []string
		for s := Stage(1); s < stages; s++ {
			names = append(names, StageName(side, s))
		}
		if want := "| " + strings.Join(names, ", ") + " |"; !strings.Contains(doc, want) {
			t.Errorf("FORMAT.md does not have the stages %q", want)
		}
	}
	for o := OK; o < Outcomes; o++ {
		if want := fmt.Sprintf(", %d %s", o, o); !strings.Contains(doc, want) {
			t.Errorf("FORMAT.md does not say %q", want)
		}
	}
}

// The formulas that FORMAT.md gives, computed as it says, are those of the code.
func TestFormatFormulas(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		ns := rnd.Int64() >> rnd.IntN(63)
		v := uint64(ns) / 16
		want := v
		if v >= 16 {
			e := uint64(0)
			for v>>(e+5) != 0 {
				e++
			}
			want = min((e+1)*16+(v>>e)%16, 510)
		}
		if got := BucketFor(ns); uint64(got) != want {
			t.Fatalf("%d ns is in bucket %d, by FORMAT.md in %d", ns, got, want)
		}
		g, bits := rnd.Uint64(), uint32(1+rnd.IntN(20))
		if got, want := BucketOf(g, bits), g*0x9E3779B97F4A7C15>>(64-bits); got != want || got >= 1<<bits {
			t.Fatalf("goroutine %x is in bucket %d, by FORMAT.md in %d", g, got, want)
		}
	}
	if got, want := CallID(3, 4, 5), uint64(3)<<56|uint64(4+1)<<44|5; got != want {
		t.Errorf("a call id is %x, by FORMAT.md %x", got, want)
	}
}
