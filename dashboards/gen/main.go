// Command gen writes the dashboards' JSON beside their code.
package main

import (
	"fmt"
	"os"

	"github.com/rpcprof/toolkit/dashboards"
)

func main() {
	for name, build := range dashboards.All {
		b, err := build()
		if err == nil {
			err = os.WriteFile(name, b, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "dashboards:", err)
			os.Exit(1)
		}
	}
}
