package relay_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/dynamodb/relay"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

var (
	tenancy = &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
	boxType = storage.UnversionedType{Group: "test", Kind: "Box"}
)

func box(name string, data []byte) *resourcepb.Resource {
	return &resourcepb.Resource{
		Id: &resourcepb.ID{
			Uid: "uid-" + name, Name: name, Tenancy: tenancy,
			Type: &resourcepb.Type{Group: boxType.Group, GroupVersion: "v1", Kind: boxType.Kind},
		},
		Data: &anypb.Any{TypeUrl: "test/Box", Value: data},
	}
}

// open opens a handle on the fake's store. A candidate may become a relay.
func open(t *testing.T, s *dynamofake.Server, candidate bool, more ...func(*dynamodb.Options)) *dynamodb.Backend {
	t.Helper()
	db, streams := s.Clients(t)
	o := &dynamodb.RelayOptions{TTL: 2 * time.Second}
	if candidate {
		o.Listen, o.Advertise = "127.0.0.1:0", "127.0.0.1:0"
	}
	opts := &dynamodb.Options{
		Table: dynamofake.Table, Prefix: "test", Poll: 5 * time.Millisecond, IdlePoll: 50 * time.Millisecond, Timeout: fixture.Timeout, Relay: o,
	}
	for _, f := range more {
		f(opts)
	}
	b, err := dynamodb.New(t.Context(), db, streams, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// Handles without a relay of their own receive each change once and in order, while the handles that are relays are closed and the shards of
// the stream are split and replaced.
func TestSubscribersSurviveTheLossOfRelays(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	s.SetShards(3)
	first, second := open(t, s, true, patient), open(t, s, true, patient)
	var watches []storage.Watch
	writer := open(t, s, false, patient)
	for i := range 6 {
		b := open(t, s, false, patient)
		w, err := b.WatchList(t.Context(), boxType, tenancy, "")
		if err != nil {
			t.Fatal(i, err)
		}
		t.Cleanup(w.Close)
		if ev := fixture.Next(t, w); ev.GetEndOfSnapshot() == nil {
			t.Fatal(ev)
		}
		watches = append(watches, w)
	}
	const names, writes = 5, 40
	stored := make([]*resourcepb.Resource, names)
	for i := range names {
		stored[i] = box(fmt.Sprint("box-", i), nil)
	}
	want := map[string][]string{}
	for i := range writes {
		for n, res := range stored {
			res.Data.Value = fmt.Append(nil, i)
			next, err := writer.WriteCAS(t.Context(), res)
			if err != nil {
				t.Fatal(err)
			}
			stored[n] = next
			want[next.GetId().GetName()] = append(want[next.GetId().GetName()], next.GetVersion())
		}
		switch i {
		case 8:
			s.Split(true)
		case 10:
			_ = first.Close()
		case 12:
			s.Show()
		case 18:
			s.Roll()
		case 20:
			first = open(t, s, true, patient)
		case 29:
			s.Split(false)
		case 30:
			_ = second.Close()
			s.Roll()
		}
	}
	for _, w := range watches {
		got := map[string][]string{}
		for range names * writes {
			res := fixture.Next(t, w).GetUpsert().GetResource()
			got[res.GetId().GetName()] = append(got[res.GetId().GetName()], res.GetVersion())
		}
		for name, versions := range want {
			if fmt.Sprint(got[name]) != fmt.Sprint(versions) {
				t.Errorf("%s: got %d versions, expected %d", name, len(got[name]), len(versions))
			}
		}
	}
	_ = first
}
