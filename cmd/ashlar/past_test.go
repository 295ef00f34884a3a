package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

// numbered returns the id of a resource with a name.
func numbered(name string) *resourcepb.ID {
	return key.Key{Group: "g", Kind: "k", Partition: "default", Namespace: "default", Name: name}.ID("", "")
}

// A history of several pages is read to its end, each resource once, even if a single resource fills a page.
func TestHistoryPages(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := inmem.New(nil)
	defer b.Close()
	var want []string
	for i := range 2*scanLimit + 1 {
		res := &resourcepb.Resource{Id: numbered(fmt.Sprintf("%04d", i))}
		res.Id.Uid = "u"
		if i < 3 {
			res.Metadata = map[string]string{"large": strings.Repeat("x", 1<<20-100)}
		}
		_, err := b.WriteCAS(ctx, res)
		require.NoError(t, err)
		want = append(want, res.Id.Name)
	}
	h, ok := storage.As[history.Historian](storage.Backend(b))
	require.True(t, ok)
	_, newest, err := h.Revisions(ctx)
	require.NoError(t, err)
	later := &resourcepb.Resource{Id: numbered("0500-later")}
	later.Id.Uid = "u"
	_, err = b.WriteCAS(ctx, later)
	require.NoError(t, err)
	for _, f := range []filter{{}, {prefix: "0"}} {
		f.partition, f.namespace = "default", storage.Wildcard
		var names []string
		p := newRecordReader(storeHistory{h}, f.forType(storage.UnversionedType{Group: "g", Kind: "k"}), newest)
		require.NoError(t, p.each(ctx, 0, func(res *resourcepb.Resource) error {
			names = append(names, res.Id.Name)
			return nil
		}))
		require.Equal(t, slices.DeleteFunc(slices.Clone(want), func(name string) bool { return !strings.HasPrefix(name, f.prefix) }), names)
	}
}

// countingHistorian counts the responses of a store's followers.
type countingHistorian struct {
	history.Historian
	answers int
}

type countingFollower struct {
	history.Follower
	of *countingHistorian
}

func (a *countingHistorian) Follow(ctx context.Context, span history.Range, after int64) (history.Follower, error) {
	f, err := a.Historian.Follow(ctx, span, after)
	return countingFollower{f, a}, err
}

func (f countingFollower) Next(ctx context.Context) ([]history.Change, int64, error) {
	f.of.answers++
	return f.Follower.Next(ctx)
}

// The history of a resource is printed while it is read, because it may be much larger than memory. Versions that the store forgets
// meanwhile are omitted, and no version is printed twice.
func TestHistoryStreams(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := inmem.New(nil)
	defer b.Close()
	inner, _ := storage.As[history.Historian](storage.Backend(b))
	h := &countingHistorian{Historian: inner}
	res := &resourcepb.Resource{Id: numbered("a")}
	res.Id.Uid = "u"
	const writes = 20
	for range writes {
		stored, err := b.WriteCAS(ctx, res)
		require.NoError(t, err)
		res.Version = stored.Version
	}
	oldest, newest, err := h.Revisions(ctx)
	require.NoError(t, err)
	seen := oldest
	shown, err := historyOf(ctx, storeHistory{h}, res.Id, func(v *version) error {
		require.Equal(t, v.revision, v.now.Modified)
		require.Equal(t, seen+1, v.revision)
		require.LessOrEqual(t, h.answers, int(v.revision-oldest), "the command reads ahead")
		seen = v.revision
		return nil
	})
	require.NoError(t, err)
	require.True(t, shown)
	require.Equal(t, newest, seen)

	seen = 0
	shown, err = historyOf(ctx, storeHistory{h}, res.Id, func(v *version) error {
		require.Greater(t, v.revision, seen)
		seen = v.revision
		return h.Compact(ctx, min(seen+2, newest))
	})
	require.NoError(t, err)
	require.True(t, shown)
	require.Equal(t, newest, seen)

	// After a compaction, the version at the oldest revision may be the one that was printed last.
	write := func(res *resourcepb.Resource) {
		stored, err := b.WriteCAS(ctx, res)
		require.NoError(t, err)
		res.Version = stored.Version
	}
	write(res)
	other := &resourcepb.Resource{Id: numbered("b")}
	other.Id.Uid = "u"
	for range 1000 {
		write(other)
	}
	write(res)
	_, newest, err = h.Revisions(ctx)
	require.NoError(t, err)
	seen = 0
	times := 0
	shown, err = historyOf(ctx, storeHistory{h}, res.Id, func(v *version) error {
		require.Greater(t, v.revision, seen)
		seen = v.revision
		if times++; times == 2 { // all but the last
			return h.Compact(ctx, newest-1)
		}
		return nil
	})
	require.NoError(t, err)
	require.True(t, shown)
	require.Equal(t, newest, seen)
	require.Equal(t, 3, times)
}
