// Package conformance is what every storage backend has to pass.
package conformance
