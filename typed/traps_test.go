package typed_test

import (
	"math"
	"testing"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

type numbers struct {
	Signed   []int64
	Unsigned []uint64
	Floats   []float64
}

// Whole numbers that a Struct holds come back digit by digit.
func TestJSONWholeNumbers(t *testing.T) {
	t.Parallel()
	c := typed.JSON[numbers]()
	in := numbers{
		Signed:   []int64{0, 1<<53 + 2, 1 << 60, -1 << 62, math.MinInt64},
		Unsigned: []uint64{1 << 63, 1<<63 + 1<<11},
		Floats:   []float64{0.1, -1e-7, 1 << 60, 1e21, 1e300, math.MaxFloat64, math.SmallestNonzeroFloat64},
	}
	res, err := c.Resource(&typed.Object[numbers]{ID: &resourcepb.ID{}, Data: in})
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Object(res)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range in.Signed {
		if out.Data.Signed[i] != n {
			t.Errorf("%d comes back as %d", n, out.Data.Signed[i])
		}
	}
	for i, n := range in.Unsigned {
		if out.Data.Unsigned[i] != n {
			t.Errorf("%d comes back as %d", n, out.Data.Unsigned[i])
		}
	}
	for i, n := range in.Floats {
		if out.Data.Floats[i] != n {
			t.Errorf("%g comes back as %g", n, out.Data.Floats[i])
		}
	}
}
