package feed

import (
	"context"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
)

// BenchmarkPass measures the cost of an event for each of 10,000 watches that do not want it, and of the step back to waiting.
func BenchmarkPass(b *testing.B) {
	l := newLine()
	f := New(l, Options[int]{})
	defer f.Close()
	const watches = 10_000
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	ws := make([]storage.Watch, watches)
	for i := range ws {
		m, err := f.Start(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		w := f.Watch(m, key.Filter{Group: "g", Kind: "quiet", Partition: "*", Namespace: "*"}, SliceSnapshot(nil), 0)
		if _, err := w.Next(context.Background()); err != nil {
			b.Fatal(err)
		}
		ws[i] = w
	}
	loud, err := f.Resume(context.Background(), all, 0, "0")
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for range b.N {
		l.append("loud")
		if _, err := loud.Next(context.Background()); err != nil {
			b.Fatal(err)
		}
		for _, w := range ws {
			_ = w.(*watch[int]).follow(cancelled)
			_, _ = w.(*watch[int]).fromPending()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/watches, "ns/watch")
}
