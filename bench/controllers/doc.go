// Package controllers measures package controller beside controller-runtime and client-go, in memory and in one run:
//
//	make bench-controllers
//
// Controller-runtime gets its objects from a fake list and watch, so it needs no API server; package controller gets them from a resource service
// on memory. Ratios above 1 mean that package controller is faster, or uses less memory. The package is a module of its own, because
// controller-runtime takes minutes to compile.
package controllers
