// Package monitoring tests the queries of docs/monitoring against scrapes of a server, and its alert rules on given series: make monitoring.
package monitoring
