// Package servicetest is the test suite of the resource service. It is written for authors of backends, transports and layers that the
// service is to run on or over, in this repository and outside.
package servicetest
