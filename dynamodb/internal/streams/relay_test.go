package streams

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
	"github.com/ashlar-dev/storage/internal/wire"
)

func at(places ...shardPosition) *Position { return &Position{stream: "arn", shards: places} }

// A position includes another one only if it is proven to be at least as far in each shard.
func TestPositionsThatIncludeOthers(t *testing.T) {
	t.Parallel()
	tr := newTree()
	tr.update(map[string]string{"a": "", "b": "a", "c": "", "d": "b", "e": "b"}, at())
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
		{"middle of the parent", at(shardPosition{"a", "15"}), at(shardPosition{"b", ""}), false},
		{"middle of the grandparent", at(shardPosition{"a", "15"}), at(shardPosition{"d", ""}), false},
		{"beginning of a sibling", at(shardPosition{"d", "1"}), at(shardPosition{"e", ""}), true},
		{"beginning of a root", at(shardPosition{"a", "15"}), at(shardPosition{"c", ""}), true},
		{"beginning of another shard's child", at(shardPosition{"c", "15"}), at(shardPosition{"b", ""}), false},
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

// Messages of another process never end this one, and a decoded batch is encoded as it was.
func FuzzBatch(f *testing.F) {
	base := at(shardPosition{"a", "1"})
	ev := &Event{At: &Position{stream: "arn", shards: base.shards, shard: "a", seq: "2", count: 7}, Damage: errTest}
	seed, err := proto.Marshal(encodeBatch(base, []*Event{ev}, at(shardPosition{"a", "2"})))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed, []byte("\x01a\x00"))
	f.Fuzz(func(t *testing.T, message, tree []byte) {
		if parents, err := decodeTree(tree); err == nil {
			known := newTree()
			known.update(parents, &Position{})
			known.includes(base, base)
		}
		in := &wire.Batch{}
		if proto.Unmarshal(message, in) != nil {
			return
		}
		base, events, end, err := decodeBatch(in)
		if err != nil {
			return
		}
		again := encodeBatch(base, events, end)
		if len(again.GetEvents()) != len(in.GetEvents()) {
			t.Fatalf("got %d events, expected %d", len(again.GetEvents()), len(in.GetEvents()))
		}
		if _, _, _, err := decodeBatch(again); err != nil {
			t.Errorf("the encoded batch is invalid: %v", err)
		}
	})
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

// Batches are divided at maxBatchBytes, each continues the position of the one before, and none is larger than its last event requires.
func TestBatchesAreDivided(t *testing.T) {
	t.Parallel()
	const size = maxBatchBytes * 2 / 3
	before := at(shardPosition{"a", "1"}, shardPosition{"b", "1"})
	var events []*Event
	for i, shard := range []string{"a", "a", "a", "b", "b"} {
		seq := strconv.Itoa(i + 2)
		events = append(events, &Event{At: &Position{stream: "arn", shards: before.shards, shard: shard, seq: seq}, Size: size, Damage: errTest})
		before = before.with(shard, seq)
	}
	end := before.with("b", "9")
	batches := newRelayBatches(at(shardPosition{"a", "1"}, shardPosition{"b", "1"}), events, end)
	if len(batches) != 3 {
		t.Fatalf("got %d batches, expected 3", len(batches))
	}
	last, sent := batches[0].base, 0
	for _, b := range batches {
		base, decoded, decodedEnd, err := decodeBatch(b.message)
		if err != nil {
			t.Fatal(err)
		}
		if base.String() != last.String() || len(decoded) > 2 {
			t.Errorf("a batch of %d events begins at %v, expected at most 2 events from %v", len(decoded), base, last)
		}
		for i, ev := range decoded {
			if got, want := ev.At.afterEvent().String(), events[sent+i].At.afterEvent().String(); got != want {
				t.Errorf("event %d ends at %s, expected %s", sent+i, got, want)
			}
		}
		last, sent = decodedEnd, sent+len(decoded)
	}
	if sent != len(events) || last.String() != end.String() {
		t.Errorf("%d events end at %v, expected %d and %v", sent, last, len(events), end)
	}
}

// A subscriber that does not receive delays no other one. It ends when the log has passed it.
func TestSlowSubscriber(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := NewRelay(Config{Clock: request.NewClock(), StoreID: driver.StoreID{1}, Silence: time.Minute})
	r.reader = newReader(&r.Config)
	r.reader.stream = "arn"
	r.log.reset(at(shardPosition{"a", "1"}))
	follow := func(send func(*wire.FollowResponse) error) <-chan error {
		ended := make(chan error, 1)
		go func() {
			ended <- r.Follow(ctx, &wire.Open{Identity: r.Identity()}, func() (*wire.FollowRequest, error) { <-ctx.Done(); return nil, ctx.Err() }, send)
		}()
		return ended
	}
	welcomed, stalled, resume := make(chan struct{}), make(chan struct{}), make(chan struct{})
	slow := follow(func(out *wire.FollowResponse) error {
		if out.GetWelcome() != nil {
			close(welcomed)
			return nil
		}
		close(stalled)
		<-resume
		return nil
	})
	<-welcomed
	received := make(chan *wire.FollowResponse)
	fast := follow(func(out *wire.FollowResponse) error {
		select {
		case received <- out:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if (<-received).GetWelcome() == nil {
		t.Fatal("the first message is no welcome")
	}
	const batches = 6
	for i := range batches {
		seq := strconv.Itoa(i + 2)
		large := &Event{At: &Position{stream: "arn", shard: "a", seq: seq}, Size: maxLogBytes / 2, Damage: errTest}
		r.publish([]*Event{large}, at(shardPosition{"a", seq}))
		if i == 0 {
			<-stalled
		}
		if (<-received).GetBatch() == nil {
			t.Fatalf("message %d is no batch", i)
		}
	}
	if _, bytes := weight(r.log.batches); bytes > maxLogBytes {
		t.Errorf("the log has %d bytes", bytes)
	}
	close(resume)
	if err := <-slow; !errors.Is(err, errSlowSubscriber) {
		t.Errorf("the slow subscriber ended with %v, expected %v", err, errSlowSubscriber)
	}
	cancel()
	if err := <-fast; !errors.Is(err, context.Canceled) {
		t.Errorf("the fast subscriber ended with %v", err)
	}
}

// A log that was extended contains records twice, if the page of the stream that extended it reached into the log. A page of history has each
// one once.
func TestPageOfAnExtendedLog(t *testing.T) {
	t.Parallel()
	r := NewRelay(Config{Clock: request.NewClock(), StoreID: driver.StoreID{1}})
	r.reader = newReader(&r.Config)
	r.reader.stream = "arn"
	event := func(seq string) *Event {
		return &Event{At: &Position{stream: "arn", shards: at(shardPosition{"a", "1"}).shards, shard: "a", seq: seq}, Damage: errTest}
	}
	start := at(shardPosition{"a", "3"})
	r.log.reset(start)
	r.log.append([]*Event{event("4"), event("5")}, at(shardPosition{"a", "5"}))
	from := at(shardPosition{"a", "1"})
	if !r.log.prepend(from, start, []*Event{event("2"), event("3"), event("4")}) {
		t.Fatal("the log was not extended")
	}
	events, _, more, ok := r.logPage(from, at(shardPosition{"a", "5"}), &everything, 100)
	if !ok || more {
		t.Fatal("the log does not have the history")
	}
	var got []string
	for _, ev := range events {
		got = append(got, ev.At.seq)
	}
	if len(got) != 4 {
		t.Errorf("got the records %v, expected 2 to 5 once", got)
	}
}

var errTest = errors.New("damaged")
