package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/resourcepb"
)

// part draws a part of a key from few texts, so that keys meet, and among them those after which the next one is hard to find.
func part(t *rapid.T, label string, empty bool) string {
	long := strings.Repeat("l", check.MaxPart)
	texts := []string{
		"a", "a\x01", "ab", "a\U0010ffff", "b", "\x01", "\ud7ff", "\ue000", "\U0010ffff", long, long[1:], long[1:] + "\x01",
		long[4:] + "\U0010ffff", strings.Repeat("\x7f", check.MaxPart),
	}
	if empty {
		texts = append(texts, "")
	}
	return rapid.SampledFrom(texts).Draw(t, label)
}

func drawKey(t *rapid.T, label string) key.Key {
	return key.Key{
		Group: part(t, label+" group", false), Kind: part(t, label+" kind", false), Partition: part(t, label+" partition", true),
		Namespace: part(t, label+" namespace", true), Name: part(t, label+" name", false),
	}
}

// A span has every key that its filter matches and, where the filter has no wildcard before a fixed part, no other.
func TestSpanHoldsWhatMatches(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := drawKey(t, "key")
		f := key.Filter{Group: k.Group, Kind: k.Kind, Partition: k.Partition, Namespace: k.Namespace}
		parts := []*string{&f.Group, &f.Kind, &f.Partition, &f.Namespace}
		fixed := rapid.IntRange(0, 4).Draw(t, "fixed parts")
		for i := fixed; i < len(parts); i++ {
			*parts[i] = storage.Wildcard
		}
		if fixed == 4 {
			runes := []rune(k.Name)
			f.NamePrefix = string(runes[:rapid.IntRange(0, len(runes)).Draw(t, "prefix")])
		}
		span := spanOf(&f)
		_, _, err := check.Span(span)
		require.NoError(t, err)
		for _, k := range []key.Key{k, drawKey(t, "other")} {
			within := (span.From == nil || k.Compare(key.Of(span.From)) >= 0) && (span.To == nil || k.Compare(key.Of(span.To)) < 0)
			require.Equal(t, f.Match(&k), within, "%q in %v", k, span)
		}
	})
}

// Between a key and what is after it there is none.
func TestAfter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k, other := drawKey(t, "key"), drawKey(t, "other")
		next := after(k.Group, k.Kind, k.Partition, k.Namespace, k.Name)
		if next == nil {
			require.LessOrEqual(t, other.Compare(k), 0)
			return
		}
		_, _, err := check.Span(storage.Span{From: next})
		require.NoError(t, err)
		require.Positive(t, key.Of(next).Compare(k))
		require.Equal(t, other.Compare(k) > 0, other.Compare(key.Of(next)) >= 0, "%q, %q and %q", k, other, key.Of(next))
	})
}

func TestAfterPrefix(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"a": "b", "a\U0010ffff": "b", "a\ud7ff": "a\ue000", "\u007f": "\u0080", "": "", "\U0010ffff\U0010ffff": "",
		strings.Repeat("\x7f", check.MaxPart): strings.Repeat("\x7f", check.MaxPart-2) + "\u0080",
	} {
		next, ok := afterPrefix(s)
		require.Equal(t, want, next, "%q", s)
		require.Equal(t, want != "", ok, "%q", s)
	}
}

// A past of several pages is read to its end, each resource once, also where one alone fills a page.
func TestPastIsReadInPages(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := inmem.New(nil)
	defer b.Close()
	var want []string
	for i := range 2*scanLimit + 1 {
		res := &resourcepb.Resource{Id: idOf("g", "k", "default", "default", fmt.Sprintf("%04d", i))}
		res.Id.Uid = "u"
		if i < 3 {
			res.Metadata = map[string]string{"large": strings.Repeat("x", 1<<20-100)}
		}
		_, err := b.WriteCAS(ctx, res)
		require.NoError(t, err)
		want = append(want, res.Id.Name)
	}
	h, ok := storage.As[storage.Historian](storage.Backend(b))
	require.True(t, ok)
	_, newest, err := h.Revisions(ctx)
	require.NoError(t, err)
	later := &resourcepb.Resource{Id: idOf("g", "k", "default", "default", "0500-later")}
	later.Id.Uid = "u"
	_, err = b.WriteCAS(ctx, later)
	require.NoError(t, err)
	for _, f := range []filter{{}, {prefix: "0"}} {
		f.partition, f.namespace = "default", storage.Wildcard
		var names []string
		p := newPast(h, storage.UnversionedType{Group: "g", Kind: "k"}, f, newest)
		require.NoError(t, p.each(ctx, 0, func(res *resourcepb.Resource) error {
			names = append(names, res.Id.Name)
			return nil
		}))
		require.Equal(t, slices.DeleteFunc(slices.Clone(want), func(name string) bool { return !strings.HasPrefix(name, f.prefix) }), names)
	}
}

// attentive counts the answers of a store's followers.
type attentive struct {
	storage.Historian
	answers int
}

type attentiveFollower struct {
	storage.Follower
	of *attentive
}

func (a *attentive) Follow(ctx context.Context, span storage.Span, after int64) (storage.Follower, error) {
	f, err := a.Historian.Follow(ctx, span, after)
	return attentiveFollower{f, a}, err
}

func (f attentiveFollower) Next(ctx context.Context) ([]storage.Change, int64, error) {
	f.of.answers++
	return f.Follower.Next(ctx)
}

// The history of a resource is shown as it is read, since it may be much larger than memory. What the store forgets meanwhile is left
// out, and nothing is shown twice.
func TestHistoryIsShownAsItIsRead(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := inmem.New(nil)
	defer b.Close()
	inner, _ := storage.As[storage.Historian](storage.Backend(b))
	h := &attentive{Historian: inner}
	res := &resourcepb.Resource{Id: idOf("g", "k", "default", "default", "a")}
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
	shown, err := historyOf(ctx, h, res.Id, func(v *version) error {
		require.Equal(t, v.revision, v.now.Modified)
		require.Equal(t, seen+1, v.revision)
		require.LessOrEqual(t, h.answers, int(v.revision-oldest), "more was read than is shown")
		seen = v.revision
		return nil
	})
	require.NoError(t, err)
	require.True(t, shown)
	require.Equal(t, newest, seen)

	seen = 0
	shown, err = historyOf(ctx, h, res.Id, func(v *version) error {
		require.Greater(t, v.revision, seen)
		seen = v.revision
		return h.Compact(ctx, min(seen+2, newest))
	})
	require.NoError(t, err)
	require.True(t, shown)
	require.Equal(t, newest, seen)

	// What is stored at the oldest revision may be what was shown last.
	write := func(res *resourcepb.Resource) {
		stored, err := b.WriteCAS(ctx, res)
		require.NoError(t, err)
		res.Version = stored.Version
	}
	write(res)
	other := &resourcepb.Resource{Id: idOf("g", "k", "default", "default", "b")}
	other.Id.Uid = "u"
	for range 1000 {
		write(other)
	}
	write(res)
	_, newest, err = h.Revisions(ctx)
	require.NoError(t, err)
	seen = 0
	times := 0
	shown, err = historyOf(ctx, h, res.Id, func(v *version) error {
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
