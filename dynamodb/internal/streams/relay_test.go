package streams

import (
	"errors"
	"testing"
	"time"
)

func at(places ...shardPosition) *Position { return &Position{stream: "arn", shards: places} }

// A position includes another one only if it is known to be at it or after it in each shard.
func TestPositionsThatIncludeOthers(t *testing.T) {
	t.Parallel()
	tr := newTree()
	tr.update(map[string]string{"a": "", "b": "a", "c": ""}, at())
	for _, c := range []struct {
		name    string
		p, from *Position
		want    bool
	}{
		{"equal", at(shardPosition{"a", "5"}), at(shardPosition{"a", "5"}), true},
		{"later", at(shardPosition{"a", "15"}), at(shardPosition{"a", "5"}), true},
		{"earlier", at(shardPosition{"a", "5"}), at(shardPosition{"a", "15"}), false},
		{"child", at(shardPosition{"b", "1"}), at(shardPosition{"a", "15"}), true},
		{"parent", at(shardPosition{"a", "15"}), at(shardPosition{"b", "20"}), false},
		{"end of the parent", at(shardPosition{"a", shardEnd}), at(shardPosition{"b", ""}), true},
		{"shard that is unknown", at(shardPosition{"a", "5"}), at(shardPosition{"a", "5"}, shardPosition{"c", "1"}), false},
		{"time instead of a number", at(shardPosition{"a", since(time.Unix(1e9, 0))}), at(shardPosition{"a", "5"}), false},
		{"number instead of a time", at(shardPosition{"a", "5"}), at(shardPosition{"a", since(time.Unix(1e9, 0))}), false},
		{"end instead of a time", at(shardPosition{"a", shardEnd}), at(shardPosition{"a", since(time.Unix(1e9, 0))}), true},
	} {
		if got := tr.includes(c.p, c.from); got != c.want {
			t.Errorf("%s: got %v, expected %v", c.name, got, c.want)
		}
	}
}

// The messages of a batch preserve the places of its events, and an event's position contains the ones before it.
func TestMessageOfABatch(t *testing.T) {
	t.Parallel()
	base := at(shardPosition{"a", "1"}, shardPosition{"c", "1"})
	event := func(shard, seq string) *Event {
		ev := &Event{At: &Position{stream: "arn", shards: base.shards, shard: shard, seq: seq, count: 7, creationTime: time.Unix(1e9, 0)}}
		ev.Delete, ev.Damage = true, errTest
		return ev
	}
	end := at(shardPosition{"a", "3"}, shardPosition{"c", "2"})
	_, events, decodedEnd, err := decodeBatch(encodeBatch(base, []*Event{event("a", "2"), event("a", "3"), event("c", "2")}, end))
	if err != nil {
		t.Fatal(err)
	}
	if decodedEnd.String() != end.String() || len(events) != 3 {
		t.Fatalf("got %d events and the end %v, expected %v", len(events), decodedEnd, end)
	}
	third := events[2]
	if third.At.shard != "c" || third.At.seq != "2" || third.At.count != 7 || !third.At.creationTime.Equal(time.Unix(1e9, 0)) || !third.Delete || third.Damage == nil {
		t.Errorf("got %+v", third)
	}
	if seq, _ := third.At.get("a"); seq != "3" {
		t.Errorf("the position of the third event has %q in the shard of the others, expected the second one", seq)
	}
}

// A full log drops its oldest batches, and begins after them.
func TestRelayLogIsBounded(t *testing.T) {
	t.Parallel()
	var l relayLog
	l.reset(at())
	l.append(nil, at(shardPosition{"a", "1"}))
	large := &Event{At: &Position{shard: "a", seq: "2"}, Size: maxLogBytes, Damage: errTest}
	l.append([]*Event{large}, at(shardPosition{"a", "2"}))
	l.append(nil, at(shardPosition{"a", "3"}))
	l.append([]*Event{large}, at(shardPosition{"a", "4"}))
	if got := l.start.String(); got != at(shardPosition{"a", "2"}).String() || len(l.batches) != 2 {
		t.Errorf("the log begins at %s with %d batches, expected two batches after 2", got, len(l.batches))
	}
	if _, _, ok := l.batch(1); ok {
		t.Error("a batch that was dropped is in the log")
	}
	if l.prepend(at(), l.start, []*Event{large}) {
		t.Error("a full log was extended")
	}
}

var errTest = errors.New("damaged")
