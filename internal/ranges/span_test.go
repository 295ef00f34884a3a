package ranges

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/check"
)

// part draws a part of a key from few texts, so that keys collide often. Some of the texts have no simple successor.
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

// A range contains every key that matches its filter and, if the filter has no wildcard before a fixed part, no other key.
func TestSpanContainsMatches(t *testing.T) {
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
		span := Of(&f)
		_, _, err := check.Range(span)
		require.NoError(t, err)
		for _, k := range []key.Key{k, drawKey(t, "other")} {
			within := (span.From == nil || k.Compare(key.Of(span.From)) >= 0) && (span.To == nil || k.Compare(key.Of(span.To)) < 0)
			require.Equal(t, f.Match(&k), within, "%q in %v", k, span)
		}
	})
}

// No key lies between a key and its successor.
func TestAfter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k, other := drawKey(t, "key"), drawKey(t, "other")
		next := After(k)
		if next == nil {
			require.LessOrEqual(t, other.Compare(k), 0)
			return
		}
		_, _, err := check.Range(history.Range{From: next})
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

// The span after a key contains all later matches and nothing before them.
func TestFilterAfter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k, other := drawKey(t, "key"), drawKey(t, "other")
		f := &Filter{key.Filter{Group: k.Group, Kind: k.Kind, Partition: storage.Wildcard, Namespace: storage.Wildcard}}
		require.True(t, f.Match(k.ID("", "")))
		behind := f.After(k.ID("", ""))
		_, _, err := check.Range(behind)
		require.NoError(t, err)
		within := other.Compare(key.Of(behind.From)) >= 0 && (behind.To == nil || other.Compare(key.Of(behind.To)) < 0)
		require.Equal(t, f.Match(other.ID("", "")) && other.Compare(k) > 0, within, "%q behind %q", other, k)
	})
}
