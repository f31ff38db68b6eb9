package dashboards

import (
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"

	exporter "github.com/rpcprof/toolkit/exporters/prometheus"
)

// All holds the dashboards by the name of their file.
var All = map[string]func() ([]byte, error){
	"overview.json": Overview,
}

func ptr[T any](v T) *T { return &v }

var source = common.DataSourceRef{Type: ptr("prometheus"), Uid: ptr("${datasource}")}

const selector = `job=~"$job"`

// target is a query and what its lines are called.
type target struct{ expr, legend string }

// panel is a question, and the queries that answer it.
type panel struct {
	question, description string
	targets               []target
	stacked               bool
}

func (p panel) build(id uint32) *timeseries.PanelBuilder {
	b := timeseries.NewPanelBuilder().
		Id(id).Title(p.question).Description(p.description).Datasource(source).Unit("s").Min(0).Span(8).Height(9).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).
			DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
		Tooltip(common.NewVizTooltipOptionsBuilder().
			Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	for i, t := range p.targets {
		b = b.WithTarget(prometheus.NewDataqueryBuilder().RefId(string(rune('A' + i))).
			Expr(t.expr).Range().LegendFormat(t.legend).Datasource(source))
	}
	if p.stacked {
		b = b.FillOpacity(60).Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
	}
	return b
}

// quantile is a percentile of calls by method, from the classic buckets.
func quantile(q float64) string {
	return fmt.Sprintf(`histogram_quantile(%g, sum by (le, rpc_method) (rate(%s_bucket{%s}[$__rate_interval])))`,
		q, exporter.CallDuration, selector)
}

// panels are the row, from left to right.
var panels = []panel{
	{
		question:    "Where does a call's time go, by stage?",
		description: "Mean seconds of a call in each stage. If queue grows while handler does not, calls wait for a worker: run rpcprof attach on an instance and read what they wait behind.",
		targets: []target{{
			expr: fmt.Sprintf(`sum by (stage) (rate(%s_sum{%s}[$__rate_interval])) / scalar(sum(rate(%s_count{%s}[$__rate_interval])))`,
				exporter.StageDuration, selector, exporter.CallDuration, selector),
			legend: "{{stage}}",
		}},
		stacked: true,
	},
	{
		question:    "Which method waits longest in the queue?",
		description: "Mean seconds in the queue by method. A method whose own handler is fast and whose queue is long waits behind another: run rpcprof attach and look for the verdict's culprit.",
		targets: []target{{
			expr: fmt.Sprintf(`sum by (method) (rate(%[1]s_sum{stage="queue",%[2]s}[$__rate_interval])) / sum by (method) (rate(%[1]s_count{stage="queue",%[2]s}[$__rate_interval]))`,
				exporter.StageDuration, selector),
			legend: "{{method}}",
		}},
	},
	{
		question:    "How long does a call take, p50 and p99?",
		description: "From the complete request to the written reply, by method; a bucket is twice the one before, and a percentile is an estimate within its bucket. If p99 leaves p50 behind, some calls wait and most do not: run rpcprof attach on an instance and compare its slow calls with typical ones.",
		targets: []target{
			{expr: quantile(0.5), legend: "p50 {{rpc_method}}"},
			{expr: quantile(0.99), legend: "p99 {{rpc_method}}"},
		},
	},
}

// variables are what a dashboard is asked for: where the metrics are, and whose. The
// jobs are looked up when it is loaded; all of them are selected at first.
func variables() []cog.Builder[dashboard.VariableModel] {
	many := func(s string) dashboard.StringOrArrayOfString {
		return dashboard.StringOrArrayOfString{ArrayOfString: []string{s}}
	}
	return []cog.Builder[dashboard.VariableModel]{
		dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus"),
		dashboard.NewQueryVariableBuilder("job").Label("Job").Datasource(source).
			Query(dashboard.StringOrMap{String: ptr(fmt.Sprintf("label_values(%s_count, job)", exporter.StageDuration))}).
			Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortAlphabeticalAsc).
			Multi(true).IncludeAll(true).AllValue(".*").
			Current(dashboard.VariableOption{Selected: ptr(true), Text: many("All"), Value: many("$__all")}),
	}
}

// Overview is one row: where the time of calls goes, which method waits longest for
// a worker, and how long calls take.
func Overview() ([]byte, error) {
	//lint:ignore SA1019 the new schema needs Grafana 12; most installations cannot import it yet
	d := dashboard.NewDashboardBuilder("rpcprof overview").
		Uid("rpcprof-overview").Tags([]string{"rpcprof"}).Refresh("30s").Time("now-1h", "now").Timezone("browser").
		Description("Where an RPC's time goes, from the stages that the service stamps.")
	for _, v := range variables() {
		d = d.WithVariable(v)
	}
	d = d.WithRow(dashboard.NewRowBuilder("Where the time goes").Id(1))
	for i, p := range panels {
		d = d.WithPanel(p.build(uint32(i) + 2))
	}
	built, err := d.Build()
	if err != nil {
		return nil, fmt.Errorf("dashboard overview: %w", err)
	}
	b, err := json.MarshalIndent(built, "", "  ")
	return append(b, '\n'), err
}
