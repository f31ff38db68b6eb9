package dashboards

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	exporter "github.com/rpcprof/toolkit/exporters/prometheus"
)

var update = flag.Bool("update", false, "write the dashboards' JSON instead of comparing it")

// What is committed is what the code makes.
func TestGenerated(t *testing.T) {
	for name, build := range All {
		want, err := build()
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the code makes (%v): run go generate ./dashboards", name, err)
		}
	}
}

// model is what the tests look at of a dashboard.
type model struct {
	Panels []struct {
		ID                       int
		Type, Title, Description string
		Datasource               struct{ Uid string }
		FieldConfig              struct{ Defaults struct{ Unit string } }
		Targets                  []struct {
			RefID, Expr string
			Datasource  struct{ Uid string }
		}
	}
	Templating struct {
		List []struct {
			Name, Type string
			Query      string
			Refresh    int
			Datasource struct{ Uid string }
		}
	}
}

const variable = "${datasource}"

func load(t *testing.T, build func() ([]byte, error)) (m model) {
	t.Helper()
	b, err := build()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte("__inputs")) {
		t.Error("it has __inputs")
	}
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// metrics finds what a query names: a metric, and which part of a histogram.
var metrics = regexp.MustCompile(`\b([a-zA-Z_:][\w:]*?)(?:_bucket|_sum|_count)?(?:\{|, job\))`)

// checkMetrics fails where a query names no metric, or one that no exporter has.
func checkMetrics(t *testing.T, where, query string) {
	t.Helper()
	known := map[string]bool{exporter.CallDuration: true, exporter.StageDuration: true, exporter.LostCalls: true}
	found := metrics.FindAllStringSubmatch(query, -1)
	if len(found) == 0 {
		t.Errorf("%s: no metric in %q", where, query)
	}
	for _, m := range found {
		if !known[m[1]] {
			t.Errorf("%s: no exporter has %s", where, m[1])
		}
	}
}

// A panel asks a question, has a unit, says what to do next, and queries only
// metrics that exist, through the data source variable.
func TestPanels(t *testing.T) {
	for name, build := range All {
		t.Run(name, func(t *testing.T) {
			ids, rows, count := map[int]bool{}, 0, 0
			for _, p := range load(t, build).Panels {
				if p.ID == 0 || ids[p.ID] {
					t.Errorf("panel %q: id %d is none of its own", p.Title, p.ID)
				}
				ids[p.ID] = true
				if p.Type == "row" {
					rows++
					continue
				}
				count++
				if !strings.HasSuffix(p.Title, "?") || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
					t.Errorf("panel %q: a question, a description, a unit and a query are needed", p.Title)
				}
				if p.Datasource.Uid != variable {
					t.Errorf("panel %q: data source is %q", p.Title, p.Datasource.Uid)
				}
				refs := map[string]bool{}
				for _, q := range p.Targets {
					if q.RefID == "" || refs[q.RefID] || q.Datasource.Uid != variable {
						t.Errorf("panel %q: query %q of data source %q", p.Title, q.RefID, q.Datasource.Uid)
					}
					refs[q.RefID] = true
					checkMetrics(t, p.Title, q.Expr)
				}
			}
			if rows != 1 || count == 0 || count > 8 {
				t.Errorf("%d rows and %d panels", rows, count)
			}
		})
	}
}

// A dashboard is asked for its data source and job, and looks the jobs up itself.
func TestVariables(t *testing.T) {
	for name, build := range All {
		t.Run(name, func(t *testing.T) {
			found := map[string]string{}
			for _, v := range load(t, build).Templating.List {
				found[v.Name] = v.Type
				if v.Type == "query" {
					checkMetrics(t, v.Name, v.Query)
					if v.Datasource.Uid != variable || v.Refresh == 0 {
						t.Errorf("%s: data source %q, refresh %d", v.Name, v.Datasource.Uid, v.Refresh)
					}
				}
				if v.Type == "datasource" && v.Query != "prometheus" {
					t.Errorf("%s: data source is of type %q", v.Name, v.Query)
				}
			}
			if len(found) != 2 || found["datasource"] != "datasource" || found["job"] != "query" {
				t.Errorf("variables are %v", found)
			}
		})
	}
}
