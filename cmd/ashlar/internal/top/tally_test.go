package top

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func resource(kind, name string, size int) *resourcepb.Resource {
	return &resourcepb.Resource{
		Id: &resourcepb.ID{
			Type: &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: kind}, Name: name, Uid: "u",
			Tenancy: &resourcepb.Tenancy{Partition: "p", Namespace: "n"},
		},
		Data: &anypb.Any{TypeUrl: "x", Value: make([]byte, size)},
	}
}

func upsert(res *resourcepb.Resource) *resourcepb.WatchEvent {
	return &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Upsert_{Upsert: &resourcepb.WatchEvent_Upsert{Resource: res}}}
}

func deletion(res *resourcepb.Resource) *resourcepb.WatchEvent {
	return &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Delete_{Delete: &resourcepb.WatchEvent_Delete{Resource: res}}}
}

var endOfSnapshot = &resourcepb.WatchEvent{
	Event: &resourcepb.WatchEvent_EndOfSnapshot_{EndOfSnapshot: &resourcepb.WatchEvent_EndOfSnapshot{}},
}

func TestTally(t *testing.T) {
	t.Parallel()
	tally := NewTally(noon)
	for i := range 3 {
		tally.Count(upsert(resource("Album", fmt.Sprint(i), 1000)), noon)
	}
	require.False(t, tally.Picture(noon).Complete)
	tally.Count(endOfSnapshot, noon)
	p := tally.Picture(noon)
	require.True(t, p.Complete)
	require.Equal(t, 3, p.Total.Resources)
	require.InDelta(t, 3000, p.Total.Bytes, 200)
	require.Empty(t, p.Changes, "a snapshot is not a change")
	require.Zero(t, p.Total.Writes)

	later := noon.Add(20 * time.Second)
	tally.Count(upsert(resource("Album", "0", 5000)), later)
	tally.Count(upsert(resource("Studio", "new", 0)), later)
	tally.Count(deletion(resource("Album", "1", 1000)), later)
	tally.Count(deletion(resource("Album", "1", 1000)), later) // a deletion of an earlier life
	p = tally.Picture(later.Add(time.Second))
	require.Equal(t, []string{"demo/Album", "demo/Studio"}, []string{name(p.Rows[0].Type), name(p.Rows[1].Type)})
	require.Equal(t, 2, p.Rows[0].Resources)
	require.InDelta(t, 6000, p.Rows[0].Bytes, 200)
	require.InDelta(t, 1.0/9, p.Rows[0].Writes, 0.001)
	require.InDelta(t, 2.0/9, p.Rows[0].Deletes, 0.001)
	require.Equal(t, []string{"delete", "delete", "create", "update"}, []string{p.Changes[0].Action, p.Changes[1].Action, p.Changes[2].Action, p.Changes[3].Action})

	require.Zero(t, tally.Picture(later.Add(rateWindow*time.Second)).Total.Writes, "rates cover a window")

	tally.Relist("the past is gone")
	p = tally.Picture(later)
	require.Equal(t, "the past is gone", p.Note)
	require.Zero(t, p.Total.Resources)
	require.Len(t, p.Changes, 4)
	tally.Count(endOfSnapshot, later)
	require.Empty(t, tally.Picture(later).Note)
}

func TestTallyIsBounded(t *testing.T) {
	t.Parallel()
	tally := NewTally(noon)
	tally.Count(endOfSnapshot, noon)
	for i := range 10 * maxChanges {
		tally.Count(upsert(resource("Album", "one", i)), noon)
	}
	p := tally.Picture(noon)
	require.Len(t, p.Changes, maxChanges)
	require.LessOrEqual(t, cap(tally.changes), 4*maxChanges)
	require.Len(t, tally.sizes, 1)
}

func TestOrders(t *testing.T) {
	t.Parallel()
	rows := []Row{
		{Type: storage.UnversionedType{Group: "a", Kind: "A"}, Resources: 1, Bytes: 30, Writes: 2},
		{Type: storage.UnversionedType{Group: "b", Kind: "B"}, Resources: 3, Bytes: 10, Deletes: 3},
		{Type: storage.UnversionedType{Group: "c", Kind: "C"}, Resources: 2, Bytes: 20, Writes: 1},
	}
	for by, want := range map[Order]string{ByType: "abc", ByResources: "bca", ByBytes: "acb", ByChanges: "bac"} {
		p := &Picture{Rows: append([]Row(nil), rows...)}
		p.sort(by, false)
		require.Equal(t, want, p.Rows[0].Type.Group+p.Rows[1].Type.Group+p.Rows[2].Type.Group, by)
		p.sort(by, true)
		require.Equal(t, want, p.Rows[2].Type.Group+p.Rows[1].Type.Group+p.Rows[0].Type.Group, by)
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", -100: "-100"} {
		require.Equal(t, want, number(n))
	}
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 999_949: "999.9 kB", 999_950: "1.0 MB", 1 << 62: "4.6 EB"} {
		require.Equal(t, want, size(n))
	}
}
