package streams

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/wire"
)

// protocol is the version of the messages between a relay and its subscribers.
const protocol = 1

// ErrIdentity reports a relay of another store, or of a table that was restored.
var ErrIdentity = errors.New("the relay serves another store, or another stream of the table")

// identity returns what a subscriber must know of the store to be served.
func (c *Config) identity(stream string) *wire.Identity {
	return &wire.Identity{StoreId: c.StoreID[:], History: stream, Protocol: protocol}
}

func sameIdentity(a, b *wire.Identity) bool {
	return slices.Equal(a.GetStoreId(), b.GetStoreId()) && a.GetHistory() == b.GetHistory()
}

// encodeTree returns the parents of the known shards, and the number of changes that they include.
func encodeTree(t *tree) ([]byte, uint64) {
	parents, changes := t.parents()
	var b []byte
	for _, shard := range slices.Sorted(maps.Keys(parents)) {
		b = protowire.AppendString(protowire.AppendString(b, shard), parents[shard])
	}
	return b, changes
}

// decodeTree is the inverse of encodeTree.
func decodeTree(b []byte) (map[string]string, error) {
	parents := map[string]string{}
	for len(b) > 0 {
		shard, rest, err := cutText(b)
		if err != nil {
			return nil, err
		}
		if parents[shard], b, err = cutText(rest); err != nil {
			return nil, err
		}
	}
	return parents, nil
}

// encodeBatch returns the message of a batch.
func encodeBatch(base *Position, events []*Event, end *Position) *wire.Batch {
	out := &wire.Batch{Base: base.Encode(), End: end.Encode(), Events: make([]*wire.Event, len(events))}
	for i, ev := range events {
		out.Events[i] = encodeEvent(ev)
	}
	return out
}

func encodeEvent(ev *Event) *wire.Event {
	at := protowire.AppendString(protowire.AppendString(nil, ev.At.shard), ev.At.seq)
	at = protowire.AppendVarint(at, ev.At.count)
	at = protowire.AppendVarint(at, protowire.EncodeZigZag(ev.At.creationTime.UnixMilli()))
	out := &wire.Event{
		Key: []string{ev.Key.Group, ev.Key.Kind, ev.Key.Partition, ev.Key.Namespace, ev.Key.Name}, Deleted: ev.Delete,
		Resource: ev.Resource, Size: int64(ev.Size), At: at,
	}
	if ev.Damage != nil {
		out.Damage = &wire.Damage{Cause: ev.Damage.Error()}
		if d := (*storage.DamagedError)(nil); errors.As(ev.Damage, &d) {
			out.Damage = &wire.Damage{Uid: d.ID.GetUid(), Version: d.Version, Cause: d.Err.Error()}
		}
	}
	return out
}

// decodeBatch is the inverse of encodeBatch. The position of an event contains the events before it. It may omit records before it that
// are no events: a watch that resumes there reads them again, and they change nothing.
func decodeBatch(in *wire.Batch) (base *Position, events []*Event, end *Position, err error) {
	if base, err = DecodePosition(in.GetBase()); err != nil {
		return nil, nil, nil, fmt.Errorf("decode the position of a batch: %w", err)
	}
	if end, err = DecodePosition(in.GetEnd()); err != nil {
		return nil, nil, nil, fmt.Errorf("decode the position of a batch: %w", err)
	}
	before, last := base, base
	for _, e := range in.GetEvents() {
		ev, err := decodeEvent(e)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("decode an event: %w", err)
		}
		if last.shard != "" && last.shard != ev.At.shard {
			before = before.with(last.shard, last.seq)
		}
		ev.At.stream, ev.At.shards, ev.At.asOf = before.stream, before.shards, before.asOf
		last = ev.At
		events = append(events, ev)
	}
	return base, events, end, nil
}

func decodeEvent(e *wire.Event) (*Event, error) {
	if len(e.GetKey()) != 5 {
		return nil, errors.New("the key is incomplete")
	}
	k := e.GetKey()
	ev := &Event{
		Key:    key.Key{Group: k[0], Kind: k[1], Partition: k[2], Namespace: k[3], Name: k[4]},
		Delete: e.GetDeleted(), Resource: e.GetResource(), Size: int(e.GetSize()), At: &Position{},
	}
	if d := e.GetDamage(); d != nil {
		ev.Damage = codec.DamageError(ev.Key, d.GetUid(), d.GetVersion(), nil, errors.New(d.GetCause()))
	} else if ev.Resource == nil {
		return nil, errors.New("it has no resource")
	}
	var err error
	b := e.GetAt()
	if ev.At.shard, b, err = cutText(b); err != nil {
		return nil, err
	}
	if ev.At.seq, b, err = cutText(b); err != nil {
		return nil, err
	}
	count, n := protowire.ConsumeVarint(b)
	if n < 0 {
		return nil, protowire.ParseError(n)
	}
	created, n := protowire.ConsumeVarint(b[n:])
	if n < 0 {
		return nil, protowire.ParseError(n)
	}
	ev.At.count, ev.At.creationTime = count, time.UnixMilli(protowire.DecodeZigZag(created))
	return ev, nil
}

// filterParts returns a filter in the form of a message.
func filterParts(f *key.Filter) []string {
	return []string{f.Group, f.Kind, f.Partition, f.Namespace, f.NamePrefix}
}

// filterOf is the inverse of filterParts.
func filterOf(parts []string) (*key.Filter, error) {
	if len(parts) != 5 {
		return nil, errors.New("the filter is incomplete")
	}
	return &key.Filter{Group: parts[0], Kind: parts[1], Partition: parts[2], Namespace: parts[3], NamePrefix: parts[4]}, nil
}
