package compat

import (
	"context"
	"testing"

	"github.com/hashicorp/consul/proto-public/pbresource"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage/resourcepb"
)

// A watch sends a snapshot, its end, and then every change.
func TestWatch(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		ctx, cancel := context.WithCancel(limited(t))
		defer cancel()
		first := s.write(ctx, t, newService("a", "10.0.0.1"))
		s.write(ctx, t, newWorkload("a", "node", "")) // another type, which is not watched
		// Without a tenancy all tenancies of the type's scope are watched. Controllers use the cloning client.
		stream, err := pbresource.NewCloningResourceServiceClient(s.ResourceServiceClient).
			WatchList(ctx, &pbresource.WatchListRequest{Type: serviceType})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, stream, "the snapshot", upsert(first))
		expect(t, stream, "the end of the snapshot", endOfSnapshot())

		second := s.write(ctx, t, inTenancy(newService("b", "10.0.0.2"), "remote", "other"))
		expect(t, stream, "a creation", upsert(second))
		expect(t, stream, "an update", upsert(s.write(ctx, t, newService("a", "10.0.0.3"))))
		reported, err := s.WriteStatus(ctx, &pbresource.WriteStatusRequest{
			Id: second.GetId(), Key: "k", Status: &pbresource.Status{ObservedGeneration: second.GetGeneration()},
		})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, stream, "a status", upsert(reported.GetResource()))
		if _, err := s.Delete(ctx, &pbresource.DeleteRequest{Id: second.GetId()}); err != nil {
			t.Fatal(err)
		}
		expect(t, stream, "a deletion", deletion(reported.GetResource()))

		cancel()
		if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
			t.Errorf("a watch that its client cancelled ends with %v, expected Canceled", err)
		}
	})
}

// This client ignores events and fields that it does not know, even if it requests all of them.
func TestWatchWithUnknownEvents(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		ctx, cancel := context.WithCancel(limited(t))
		defer cancel()
		unknown, err := proto.Marshal(&resourcepb.WatchListRequest{
			Cursors: true, Before: true, BookmarkInterval: durationpb.New(1e9),
		})
		if err != nil {
			t.Fatal(err)
		}
		req := &pbresource.WatchListRequest{Type: serviceType}
		req.ProtoReflect().SetUnknown(unknown)
		first := s.write(ctx, t, newService("a", "10.0.0.1"))
		stream, err := s.WatchList(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		var bookmarks int
		known := func(what string) *pbresource.WatchEvent {
			for {
				ev, err := stream.Recv()
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if ev.GetEvent() != nil {
					return ev
				}
				bookmarks++
			}
		}
		sameBut := func(what string, want *pbresource.WatchEvent) (unknown []byte) {
			t.Helper()
			got := known(what)
			unknown = got.ProtoReflect().GetUnknown()
			got.ProtoReflect().SetUnknown(nil)
			equal(t, what, got, want)
			return unknown
		}
		sameBut("the snapshot", upsert(first))
		sameBut("the end of the snapshot", endOfSnapshot())
		updated := s.write(ctx, t, newService("a", "10.0.0.2"))
		extra := sameBut("an update", upsert(updated))
		ours := &resourcepb.WatchEvent{}
		if err := proto.Unmarshal(extra, ours); err != nil || ours.GetCursor() == "" || ours.GetBefore().GetVersion() != first.GetVersion() {
			t.Errorf("beside the update came %v (%v), expected a cursor and the resource before: the search is broken", ours, err)
		}
		for bookmarks == 0 {
			if ev, err := stream.Recv(); err != nil {
				t.Fatalf("no bookmark: %v", err)
			} else if ev.GetEvent() == nil {
				bookmarks++
			}
		}
		if _, err := s.Delete(ctx, &pbresource.DeleteRequest{Id: first.GetId()}); err != nil {
			t.Fatal(err)
		}
		sameBut("a deletion", deletion(updated))
	})
}

// A caller that watches one group version gets a deletion when the resource moves to another group version.
func TestWatchOfGroupVersion(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		ctx := limited(t)
		stream, err := s.WatchList(ctx, &pbresource.WatchListRequest{Type: serviceType, Tenancy: byDefault})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, stream, "the end of the snapshot", endOfSnapshot())
		expect(t, stream, "a creation", upsert(s.write(ctx, t, newService("a", "10.0.0.1"))))
		s.write(ctx, t, &pbresource.Resource{Id: &pbresource.ID{Type: serviceV1, Name: "a"}})
		ev, err := stream.Recv()
		left := ev.GetDelete().GetResource().GetId()
		if err != nil || left.GetName() != "a" || left.GetType().GetGroupVersion() != serviceType.GetGroupVersion() {
			t.Errorf("a resource that moved to another group version is followed by %v (%v), expected its deletion", ev, err)
		}
	})
}

// expect compares the next event of a stream.
func expect(t *testing.T, stream grpc.ServerStreamingClient[pbresource.WatchEvent], what string, want *pbresource.WatchEvent) {
	t.Helper()
	got, err := stream.Recv()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	equal(t, what, got, want)
}

func upsert(res *pbresource.Resource) *pbresource.WatchEvent {
	return &pbresource.WatchEvent{Event: &pbresource.WatchEvent_Upsert_{Upsert: &pbresource.WatchEvent_Upsert{Resource: res}}}
}

func deletion(res *pbresource.Resource) *pbresource.WatchEvent {
	return &pbresource.WatchEvent{Event: &pbresource.WatchEvent_Delete_{Delete: &pbresource.WatchEvent_Delete{Resource: res}}}
}

func endOfSnapshot() *pbresource.WatchEvent {
	return &pbresource.WatchEvent{Event: &pbresource.WatchEvent_EndOfSnapshot_{EndOfSnapshot: &pbresource.WatchEvent_EndOfSnapshot{}}}
}
