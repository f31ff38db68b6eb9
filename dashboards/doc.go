// Package dashboards makes the Grafana dashboards, as Go code. The JSON they
// generate is committed, so that nobody needs Go to import one; a test compares.
//
// A dashboard takes its data source, job and method as variables. What may not come
// in: a query for a metric that no exporter here has.
package dashboards

//go:generate go run ./gen
