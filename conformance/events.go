package conformance

import "github.com/ashlar-dev/storage/resourcepb"

func upsertEvent(res *resourcepb.Resource) *resourcepb.WatchEvent {
	return &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Upsert_{Upsert: &resourcepb.WatchEvent_Upsert{Resource: res}}}
}

func deleteEvent(res *resourcepb.Resource) *resourcepb.WatchEvent {
	return &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Delete_{Delete: &resourcepb.WatchEvent_Delete{Resource: res}}}
}

// subject returns the resource of an event, or nil for the end of a snapshot.
func subject(ev *resourcepb.WatchEvent) *resourcepb.Resource {
	if d := ev.GetDelete(); d != nil {
		return d.GetResource()
	}
	return ev.GetUpsert().GetResource()
}

// label returns a text that distinguishes the events of one key.
func label(ev *resourcepb.WatchEvent) string {
	if ev.GetDelete() != nil {
		return "delete " + subject(ev).GetVersion()
	}
	return "upsert " + subject(ev).GetVersion()
}
