// Package bench measures every adapter side by side with the raw driver of its database, or with the library that its users
// would otherwise take: same server, same values, same number of callers, in turns within one run. Read the ratios; what a
// rate is worth depends on the machine, and machines are noisy.
//
//	make bench                      every backend
//	make bench BACKEND=postgres     one
//	make bench BENCHTIME=3s         longer turns
//	make bench GROW=1               how costs grow with the store, plotted in docs/assets/growth
//	make bench-smoke                every backend for a moment: what it prints means nothing, but it runs
//
// Each comparison prints a line in the format of Go benchmarks for either side, with the 50th and 99th percentile of the
// latency beside the mean, and then
//
//	ratio <backend>/<what>/<callers> <value>
//
// where more than 1 means that the adapter is faster. Lines that begin with "latency" compare latencies the same way: there,
// less than 1 means that the adapter is faster.
//
// GROW=1 fills a store of each backend with 1,000 to 1,000,000 resources and measures one caller's operations at each size, beside
// the raw driver with as many things of the same size: see growths. What it has found goes to docs/assets/growth as JSON, which package
// growth draws; `go run ./growth/plot ../docs/assets/growth/*.json` draws it again.
//
// Moving a store (BACKEND=migrate) is measured by the clock for the whole, five times: see BenchmarkMigrate.
//
// It is a module of its own, because its peers are nobody else's dependencies.
package bench
