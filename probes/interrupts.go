package probes

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/rpcprof/toolkit/probes/bpf"
	"github.com/rpcprof/toolkit/rpcprof/profile"
)

// Vectors above the interrupt lines (enum vector in rpcprof.bpf.c).
const (
	firstVector  = 256
	firstSoftIRQ = 288
	vectors      = 304
)

var vectorNames = [...]string{"local_timer", "reschedule", "call_function", "call_function_single", "irq_work"}

// In the order of the kernel's enum (include/linux/interrupt.h).
var softirqNames = [...]string{"HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"}

// irqNames reads what the interrupt lines are called.
func irqNames() map[uint32]string {
	out := map[uint32]string{}
	b, err := os.ReadFile("/proc/interrupts")
	if err != nil {
		return out
	}
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSuffix(f[0], ":"), 10, 8)
		if err == nil {
			out[uint32(n)] = f[len(f)-1]
		}
	}
	return out
}

func vectorName(v uint32, lines map[uint32]string) string {
	switch {
	case v < firstVector:
		if n := lines[v]; n != "" {
			return n
		}
		return fmt.Sprintf("irq %d", v)
	case v-firstVector < uint32(len(vectorNames)):
		return vectorNames[v-firstVector]
	}
	return fmt.Sprintf("vector %d", v)
}

func softirqName(v uint32) string {
	if v < uint32(len(softirqNames)) {
		return softirqNames[v]
	}
	return fmt.Sprintf("softirq %d", v)
}

// interrupts gives the totals of every CPU; onCalls is added by CPU and vector.
func (k *kernel) interrupts(onCalls map[[2]uint32]int64) []profile.Interrupt {
	lines := irqNames()
	out := []profile.Interrupt{}
	for v := range uint32(vectors) {
		var per []bpf.ProgramsTotal
		if k.coll.Maps["totals"].Lookup(&v, &per) != nil {
			continue
		}
		for cpu, t := range per {
			if t.Count == 0 {
				continue
			}
			i := profile.Interrupt{CPU: cpu, Kind: "irq", Name: "", Count: int64(t.Count), NS: int64(t.Ns), OnCallsNS: onCalls[[2]uint32{uint32(cpu), v}]}
			if v >= firstSoftIRQ {
				i.Kind, i.Name = "softirq", softirqName(v-firstSoftIRQ)
			} else {
				i.Name = vectorName(v, lines)
			}
			out = append(out, i)
		}
	}
	return out
}
