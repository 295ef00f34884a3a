//go:build integration

package postgres

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestOwnerReferencesBesideGaps reads the references to an owner beside writers of which one is always pending. The answer arrives, and it
// is the state of the store after a visible change, with all changes of lower numbers.
func TestOwnerReferencesBesideGaps(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	for n := range 2 {
		owner := fmt.Sprint("owner-", n)
		if _, err := b.WriteCAS(ctx, orderResource("permanent-of-"+owner, owner)); err != nil {
			t.Fatal(err)
		}
		ids, err := besideGaps(t, ctx, server, b, owner, func() ([]*resourcepb.ID, error) {
			return b.OwnerReferences(ctx, orderResource(owner, "").Id)
		})
		numbers := map[string][]int{}
		var names []string
		for _, id := range ids {
			names = append(names, id.Name+" "+id.Uid+" "+id.Type.GroupVersion)
			kind, rest, _ := strings.Cut(id.Name, "-")
			number, _ := strconv.Atoi(rest[strings.LastIndex(rest, "-")+1:])
			numbers[kind] = append(numbers[kind], number)
		}
		slices.Sort(numbers["pending"])
		var last int
		if shown := numbers["visible"]; len(shown) > 0 {
			last = shown[0]
		}
		want := map[string][]int{"permanent": {n}, "pending": {last - 1, last}, "visible": {last}}
		if last == 0 {
			want["pending"] = []int{0}
		}
		if err != nil || !maps.EqualFunc(numbers, want, slices.Equal[[]int]) {
			t.Errorf("%q, %v; expected the state after a visible change: %v", names, err, want)
		}
		if !slices.IsSortedFunc(ids, func(x, y *resourcepb.ID) int { return cmp.Compare(x.Name, y.Name) }) {
			t.Errorf("%q, expected the order of keys", names)
		}
	}
}
