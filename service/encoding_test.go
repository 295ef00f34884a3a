package service

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// A cached encoding decodes as the event, whatever the number of other events, and the cache stays small.
func TestEncodings(t *testing.T) {
	t.Parallel()
	e := newEventCache()
	seen := map[*resourcepb.WatchEvent]int{}
	for round := range 3 * maxCachedEvents {
		for _, variant := range []int{0, 1, 2, 3, 4, 0} {
			res := &resourcepb.Resource{
				Id:      &resourcepb.ID{Name: fmt.Sprint(round % 7), Type: &resourcepb.Type{Group: "g", GroupVersion: "v1", Kind: "K"}, Tenancy: &resourcepb.Tenancy{}},
				Version: fmt.Sprint(round), Data: &anypb.Any{Value: make([]byte, 100*(round%300))},
			}
			ev := &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Upsert_{Upsert: &resourcepb.WatchEvent_Upsert{Resource: res}}}
			switch variant {
			case 1:
				ev.Event = &resourcepb.WatchEvent_Delete_{Delete: &resourcepb.WatchEvent_Delete{Resource: res}}
			case 2:
				ev.More = true
			case 3:
				ev.Before = res
			case 4:
				ev.Cursor = "here"
			}
			out, err := e.encode(ev, &registry.Type{})
			if err != nil {
				t.Fatal(err)
			}
			raw, err := proto.Marshal(out)
			if err != nil {
				t.Fatal(err)
			}
			back := &resourcepb.WatchEvent{}
			if err := proto.Unmarshal(raw, back); err != nil || !proto.Equal(back, ev) {
				t.Fatalf("round %d, variant %d: another event came back: %v", round, variant, err)
			}
			seen[out]++
			if n := len(e.byKey); n > maxCachedEvents || e.bytes > maxCachedBytes {
				t.Fatalf("%d events of %d bytes are kept", n, e.bytes)
			}
		}
	}
	shared := 0
	for _, times := range seen {
		if times == 2 {
			shared++
		}
	}
	if shared != 3*maxCachedEvents {
		t.Errorf("%d of %d events that came twice were encoded once", shared, 3*maxCachedEvents)
	}
	e.bytes = 0
	for _, kept := range e.byKey {
		e.bytes -= len(kept.ProtoReflect().GetUnknown())
	}
	for range maxCachedEvents {
		e.drop(e.next)
		e.next = (e.next + 1) % maxCachedEvents
	}
	if len(e.byKey) != 0 {
		t.Errorf("%d events are kept that the ring does not hold", len(e.byKey))
	}
}
