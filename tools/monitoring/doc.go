// Package monitoring tests what a server reports with the programs that operators use: make monitoring. Prometheus' engine evaluates the queries of
// docs/monitoring against scrapes, and its alert rules on given series. A receiver of the OpenTelemetry collector reads traces.
package monitoring
