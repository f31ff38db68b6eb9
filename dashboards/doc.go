// Package dashboards makes the Grafana dashboards, as Go code. The JSON they
// generate is committed, so that nobody needs Go to import one; a test compares.
//
// A dashboard takes its data source and job as variables. What may not come in: a
// query for a metric that no exporter here has, and a panel that asks no question.
package dashboards

//go:generate go run ./gen
