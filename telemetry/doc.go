// Package telemetry defines how a store reports: a logger, metrics and traces, by the API of OpenTelemetry. It links no SDK, so a program
// selects its own exporter.
//
// A program passes Options to an adapter's New, or to storage.Open by the context:
//
//	ctx = telemetry.NewContext(ctx, telemetry.Options{Logger: logger, Meter: provider.Meter("my-program")})
//	backend, err := storage.Open(ctx, "postgres://…")
//
// Package driver/backend reports everything that is the same on all databases, such as calls. An adapter reports, by the same Recorder,
// facts that only it knows, such as the connections of its pool. [Metrics] lists all metrics; docs/metrics.md has the same list.
package telemetry
