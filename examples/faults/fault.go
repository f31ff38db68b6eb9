package faults

import (
	"fmt"
	"strings"
	"time"
)

// The amounts of the faults. A sleep may last up to a millisecond longer than
// asked for; Stats has what it was.
const (
	GetTime    = 150 * time.Microsecond // CPU time of a Get
	ReportTime = 12 * time.Millisecond  // a Report's sleep
	LockHold   = 1500 * time.Microsecond
	LockBunch  = 8 // how many calls want the mutex at once
	SleepTime  = 10 * time.Millisecond
	DiskTime   = 4 * time.Millisecond // at least; the fsync under way is completed
	DiskWrite  = 4 << 10              // bytes for each fsync
	HogBurst   = 12 * time.Millisecond
	HogPeriod  = 120 * time.Millisecond
	// EveryBurst of each EveryPeriod is burnt where every call is to be hit.
	EveryBurst  = 10 * time.Millisecond
	EveryPeriod = 12 * time.Millisecond
)

// HitShare is the share of calls that a fault hits unless every call is hit.
const HitShare = 0.1

// The methods of the service.
const (
	MethodGet    = "demo.Store/Get"
	MethodReport = "demo.Store/Report"
)

// Fault is one fault: how the service is built and loaded to have it.
type Fault struct {
	Name, Help string

	Workers   int     // workers of the service; 0 runs handlers on the reader
	Conns     int     // connections of the load
	Rate      float64 // calls a second of the open loop
	EveryRate float64 // the same when every call is hit
	Bunch     int     // how many hit calls come at once
	Report    bool    // hit calls are Reports
	External  bool    // the service and the load do nothing: the fault is outside
	Hog       bool    // by processes that call Hog, HogProcesses of them
}

var all = []Fault{
	{Name: "none", Help: "nothing is wrong", Workers: 4, Conns: 4, Rate: 600, EveryRate: 600, External: true},
	{Name: "lock", Help: "hit calls hold one mutex", Workers: 16, Conns: 4, Rate: 600, EveryRate: 300, Bunch: LockBunch},
	{Name: "pool", Help: "two workers, occupied by slow calls", Workers: 2, Conns: 4, Rate: 400, EveryRate: 100, Report: true},
	{Name: "inline", Help: "slow calls run on the reader", Workers: 0, Conns: 2, Rate: 200, EveryRate: 60, Report: true},
	{Name: "hog", Help: "another process takes the CPU", Workers: 4, Conns: 4, Rate: 600, EveryRate: 200, External: true, Hog: true},
	{Name: "sleep", Help: "hit calls sleep in the handler", Workers: 16, Conns: 4, Rate: 600, EveryRate: 600},
	{Name: "disk", Help: "hit calls write and fsync", Workers: 8, Conns: 4, Rate: 300, EveryRate: 100},
}

// Faults gives all faults.
func Faults() []Fault { return append([]Fault(nil), all...) }

// Names gives the names of all faults.
func Names() []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names
}

// Lookup gives the fault of that name; "" is "none".
func Lookup(name string) (Fault, error) {
	if name == "" {
		name = "none"
	}
	for _, f := range all {
		if f.Name == name {
			return f, nil
		}
	}
	return Fault{}, fmt.Errorf("no fault %q: there are %s", name, strings.Join(Names(), ", "))
}
