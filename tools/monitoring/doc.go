// Package monitoring tests the metrics, alert rules and traces of a server with the programs of operators (make monitoring). Prometheus' engine
// evaluates the queries of docs/monitoring on scrapes, and its alert rules on given series. A receiver of the OpenTelemetry collector reads traces.
package monitoring
