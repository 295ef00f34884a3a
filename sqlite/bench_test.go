package sqlite

import (
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// BenchmarkRead compares a read by key with its SQL statement alone.
func BenchmarkRead(b *testing.B) {
	s := open(b, newPath(b), nil)
	res := resource("a", 1)
	res.Metadata = map[string]string{"made-by": "bench"}
	res.Data = &anypb.Any{TypeUrl: "example.com/bench.Thing", Value: make([]byte, 500)}
	fixture.Write(b, s, res)
	for _, consistency := range []storage.ReadConsistency{storage.EventualConsistency, storage.StrongConsistency} {
		b.Run(consistency.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Read(b.Context(), consistency, res.Id); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("statement", func(b *testing.B) {
		b.ReportAllocs()
		c, err := s.handle.readers.take(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		defer s.handle.readers.give(c)
		k := []byte("group\x00Kind\x00partition\x00namespace\x00a")
		buffer := make([]byte, 0, 1000)
		for b.Loop() {
			buffer = append(buffer[:0], k...)
			if exists, _, err := c.get(&buffer); !exists || err != nil {
				b.Fatal(exists, err)
			}
		}
	})
}
