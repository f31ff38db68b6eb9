package dashboards

import (
	"encoding/json"
	"fmt"

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

// panel is a question, and the query that answers it.
type panel struct {
	question, description, query, legend string
	stacked                              bool
}

func (p panel) build() *timeseries.PanelBuilder {
	b := timeseries.NewPanelBuilder().
		Title(p.question).Description(p.description).Datasource(source).Unit("s").Span(8).Height(9).
		WithTarget(prometheus.NewDataqueryBuilder().Expr(p.query).LegendFormat(p.legend).Datasource(source))
	if p.stacked {
		b = b.FillOpacity(60).Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
	}
	return b
}

// Overview is one row: where the time of calls goes, which method waits longest for
// a worker, and how long calls take.
func Overview() ([]byte, error) {
	//lint:ignore SA1019 the new schema needs Grafana 12; most installations cannot import it yet
	d := dashboard.NewDashboardBuilder("rpcprof overview").
		Uid("rpcprof-overview").Tags([]string{"rpcprof"}).Refresh("30s").Time("now-1h", "now").Timezone("browser").
		Description("Where an RPC's time goes, from the stages that the service stamps.").
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus")).
		WithVariable(dashboard.NewQueryVariableBuilder("job").Label("Job").Datasource(source).
			Query(dashboard.StringOrMap{String: ptr(fmt.Sprintf("label_values(%s_count, job)", exporter.StageDuration))}).
			Multi(true).IncludeAll(true)).
		WithRow(dashboard.NewRowBuilder("Where the time goes"))
	for _, p := range []panel{
		{
			question:    "Where does a call's time go, by stage?",
			description: "Mean seconds of a call in each stage. If queue grows while handler does not, calls wait for a worker: attach to an instance and read what they wait behind.",
			query: fmt.Sprintf(`sum by (stage) (rate(%s_sum{%s}[$__rate_interval])) / scalar(sum(rate(%s_count{%s}[$__rate_interval])))`,
				exporter.StageDuration, selector, exporter.CallDuration, selector),
			legend: "{{stage}}", stacked: true,
		},
		{
			question:    "Which method waits longest for a worker?",
			description: "Mean seconds in the queue by method. A method whose own handler is fast and whose queue is long waits behind another: run rpcprof attach and look for the verdict's culprit.",
			query: fmt.Sprintf(`sum by (method) (rate(%[1]s_sum{stage="queue",%[2]s}[$__rate_interval])) / sum by (method) (rate(%[1]s_count{stage="queue",%[2]s}[$__rate_interval]))`,
				exporter.StageDuration, selector),
			legend: "{{method}}",
		},
		{
			question:    "How long do the slowest calls take?",
			description: "The 99th percentile by method, from the complete request to the written reply, within its bucket. Compare it with the stages beside it, then attach to the instance that is slowest.",
			query: fmt.Sprintf(`histogram_quantile(0.99, sum by (le, rpc_method) (rate(%s_bucket{%s}[$__rate_interval])))`,
				exporter.CallDuration, selector),
			legend: "{{rpc_method}}",
		},
	} {
		d = d.WithPanel(p.build())
	}
	built, err := d.Build()
	if err != nil {
		return nil, fmt.Errorf("dashboard overview: %w", err)
	}
	b, err := json.MarshalIndent(built, "", "  ")
	return append(b, '\n'), err
}
