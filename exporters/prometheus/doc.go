// Package prometheus lets Prometheus scrape a Profiler's stage histograms from
// inside the service. A scrape reads what is counted anyway and costs the calls
// nothing.
//
// What may not come in: labels without a bound, such as peers or process ids.
package prometheus
