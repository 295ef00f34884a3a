// Package monitoring tests the queries of docs/monitoring against scrapes of a server: make monitoring.
package monitoring
