package main

import (
	"context"
	"fmt"

	"github.com/rpcprof/toolkit/probes"
)

type doctorCmd struct {
	PID  int  `arg:"" optional:"" name:"pid" help:"Also check what can be seen of this process."`
	JSON bool `name:"json" help:"Write the findings as JSON."`
}

func (d *doctorCmd) Run(_ context.Context, con *console) error {
	checks := probes.Doctor(d.PID)
	if d.JSON {
		return writeJSON(con.out, map[string]any{"schema": 1, "checks": checks})
	}
	for _, c := range checks {
		mark := "ok  "
		if !c.OK {
			mark = "no  "
		}
		fmt.Fprintf(con.out, "%s %-22s %s\n", mark, c.Name, c.Found)
		if !c.OK && c.Do != "" {
			fmt.Fprintf(con.out, "     %-22s → %s\n", "", c.Do)
		}
	}
	return nil
}
