package streams

import (
	"slices"
	"testing"
)

// A tree: a is read to its end, b and c are its children, d is b's, and e has no parent.
func TestTree(t *testing.T) {
	t.Parallel()
	tree := newTree()
	tree.update(map[string]string{"a": "", "b": "a", "c": "a", "d": "b", "e": ""}, &Position{})
	for _, c := range []struct {
		at   []shardPosition
		want []string
	}{
		{[]shardPosition{{"a", "5"}}, []string{"e"}},
		{[]shardPosition{{"a", shardEnd}}, []string{"b", "c", "e"}},
		{[]shardPosition{{"a", shardEnd}, {"b", "7"}, {"e", shardEnd}}, []string{"c"}},
		{[]shardPosition{{"a", shardEnd}, {"b", shardEnd}, {"c", ""}, {"e", ""}}, []string{"d"}},
		{[]shardPosition{{"d", "1"}, {"e", "1"}}, []string{"c"}},
	} {
		children, roots, _ := tree.ready(&Position{shards: c.at})
		ready := append(children, roots...)
		slices.Sort(ready)
		if !slices.Equal(ready, c.want) {
			t.Errorf("at %v %v may be started, expected %v", c.at, ready, c.want)
		}
	}
	p := &Position{shards: []shardPosition{{"a", shardEnd}, {"b", "7"}}}
	for _, c := range []struct {
		shard, seq string
		want       bool
	}{{"a", "99", true}, {"b", "7", true}, {"b", "8", false}, {"c", "1", false}, {"d", "1", false}} {
		if got := tree.covers(p, &Position{shard: c.shard, seq: c.seq}); got != c.want {
			t.Errorf("%v covers %s in %s: %v", p, c.seq, c.shard, got)
		}
	}
	ahead := &Position{shards: []shardPosition{{"b", shardEnd}, {"c", "3"}, {"d", "1"}}}
	if got := tree.merge(p, ahead); !slices.Equal(got.shards, ahead.shards) {
		t.Errorf("merged to %v", got)
	}
	if got := tree.merge(ahead, p); !slices.Equal(got.shards, ahead.shards) {
		t.Errorf("merged to %v", got)
	}
}

// The reader has a time for a shard that it opened at its end. A watch that has read less of the shard has not passed that time: its own
// place is before records that the reader reads when it begins at the shard's beginning again.
func TestMergeWithTime(t *testing.T) {
	t.Parallel()
	tree := newTree()
	tree.update(map[string]string{"a": "", "b": ""}, &Position{})
	for _, c := range []struct{ watch, reader, want string }{
		{"", "@200", ""}, {"@100", "@200", "@100"}, {"@200", "@100", "@200"}, {"@200", "@200", "@200"}, {"@200", "", "@200"},
		{"7", "@200", "7"}, {"@200", "7", "7"}, {"", "7", "7"}, {"@200", shardEnd, shardEnd},
	} {
		at := &Position{shards: []shardPosition{{"a", c.watch}, {"b", "1"}}}
		end := &Position{shards: []shardPosition{{"a", c.reader}, {"b", "2"}}}
		if got := tree.merge(at, end).shards; !slices.Equal(got, []shardPosition{{"a", c.want}, {"b", "2"}}) {
			t.Errorf("%q merged with %q: %v, expected %q", c.watch, c.reader, got, c.want)
		}
	}
}
