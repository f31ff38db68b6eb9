package dashboards

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	exporter "github.com/rpcprof/toolkit/exporters/prometheus"
)

// What is committed is what the code makes.
func TestGenerated(t *testing.T) {
	for name, build := range All {
		want, err := build()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the code makes (%v): run go generate ./dashboards", name, err)
		}
	}
}

// A panel asks a question, has a unit, says what to do next, and queries only
// metrics that exist, through the data source variable.
func TestPanels(t *testing.T) {
	metrics := regexp.MustCompile(`\b(rpc[a-z_]*?)(_bucket|_sum|_count)?\{`)
	known := map[string]bool{exporter.CallDuration: true, exporter.StageDuration: true, exporter.LostCalls: true}
	for name, build := range All {
		b, err := build()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("__inputs")) {
			t.Errorf("%s has __inputs", name)
		}
		var d struct {
			Panels []struct {
				Type, Title, Description string
				FieldConfig              struct{ Defaults struct{ Unit string } }
				Targets                  []struct {
					Expr       string
					Datasource struct{ Uid string }
				}
			}
		}
		if err := json.Unmarshal(b, &d); err != nil {
			t.Fatal(err)
		}
		panels := 0
		for _, p := range d.Panels {
			if p.Type == "row" {
				continue
			}
			panels++
			if !strings.HasSuffix(p.Title, "?") || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
				t.Errorf("%s, panel %q: a question, a description, a unit and a query are needed", name, p.Title)
			}
			for _, q := range p.Targets {
				if q.Datasource.Uid != "${datasource}" {
					t.Errorf("%s, panel %q: data source is %q", name, p.Title, q.Datasource.Uid)
				}
				found := metrics.FindAllStringSubmatch(q.Expr, -1)
				if len(found) == 0 {
					t.Errorf("%s, panel %q: no metric in %q", name, p.Title, q.Expr)
				}
				for _, m := range found {
					if !known[m[1]] {
						t.Errorf("%s, panel %q: no exporter has %s", name, p.Title, m[1])
					}
				}
			}
		}
		if panels == 0 || panels > 8 {
			t.Errorf("%s has %d panels", name, panels)
		}
	}
}
