// Package bench measures every adapter side by side with the raw driver of its database, or with the library that its users would
// use otherwise: same server, same values, same number of callers, in turns within one run. Read the ratios; rates depend on the
// machine, and machines are noisy.
//
//	make bench                      every backend
//	make bench BACKEND=postgres     one
//	make bench BENCHTIME=3s         longer turns
//	make bench GROW=1               growth of costs with the store, plotted in docs/assets/growth
//	make bench-smoke                every backend for a moment: shows that each comparison runs, without meaningful results
//
// Each comparison prints a line in the format of Go benchmarks for both sides, with the 50th and 99th percentile of the latency
// beside the mean, and then
//
//	ratio <backend>/<operation>/<callers> <value>
//
// A ratio above 1 means that the adapter is faster. Lines that begin with "latency" compare latencies in the same format: there, a
// ratio below 1 means that the adapter is faster. Lines that begin with "cpu" compare the CPU time of an operation, of client and server
// together; there too, less is better.
//
// GROW=1 fills a store of each backend with 1,000 to 1,000,000 resources and measures one caller's operations at each size, beside
// the raw driver with as many items of the same size: see growths. The results are stored in docs/assets/growth as JSON, which
// package growth draws; `go run ./growth/plot ../docs/assets/growth/*.json` draws it again.
//
// The comparison of controllers with controller-runtime is a module of its own, controllers.
//
// BACKEND=migrate measures the wall time of a whole move, five times: see BenchmarkMigrate.
//
// The package is a separate module, because no other package needs its dependencies.
package bench
