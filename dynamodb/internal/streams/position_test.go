package streams

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestCompareSeq(t *testing.T) {
	t.Parallel()
	rising := []string{"", "@100", "@1000", "000000000000000000007", "12", "000000000000000000120", "99999999999999999999999999999", "100000000000000000000000000000", shardEnd}
	for i, a := range rising {
		for k, b := range rising {
			if got := compareSeq(a, b); (got < 0) != (i < k) || (got > 0) != (i > k) {
				t.Errorf("%q and %q compare as %d", a, b, got)
			}
		}
	}
}

func FuzzDecodePosition(f *testing.F) {
	p := &Position{stream: "arn:x", asOf: time.Unix(1234567890, 0), shards: []shardPosition{{"shard-1", "17"}, {"shard-2", shardEnd}, {"shard-3", ""}}}
	f.Add(p.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePosition(b)
		if err != nil {
			return
		}
		again, err := DecodePosition(p.Encode())
		if err != nil || again.stream != p.stream || !slices.Equal(again.shards, p.shards) || !again.asOf.Equal(p.asOf) {
			t.Errorf("%v became %v: %v", p, again, err)
		}
	})
}

// compareSeq is a total order, for any content of a cursor.
func FuzzCompareSeq(f *testing.F) {
	f.Add("", "@12", "$")
	f.Add("000000000000000000007", "12", "@0")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		sign := func(n int) int { return min(max(n, -1), 1) }
		if sign(compareSeq(a, b)) != -sign(compareSeq(b, a)) {
			t.Errorf("%q and %q compare as %d and %d", a, b, compareSeq(a, b), compareSeq(b, a))
		}
		if compareSeq(a, b) <= 0 && compareSeq(b, c) <= 0 && compareSeq(a, c) > 0 {
			t.Errorf("%q, %q, %q are in no order", a, b, c)
		}
		if at, ok := sinceTime(a); ok && at.Unix() == math.MinInt64 {
			t.Errorf("%q is %v", a, at)
		}
	})
}
