package typed

import (
	"time"

	"github.com/oklog/ulid/v2"
)

// Created returns the time at which the program that created the resource assigned its uid, in milliseconds of that program's clock. It is the zero
// time if the uid is not a ULID, which other programs than typed clients may use.
func (o *Object[T]) Created() time.Time { return ulidTime(o.ID.GetUid()) }

// Updated returns the time of the last change: of the generation, or of a later status. Like Created it is the time of the clock of the program that
// made the change, and the zero time if that program used no ULID.
func (o *Object[T]) Updated() time.Time {
	latest := ulidTime(o.Generation)
	for _, status := range o.Status {
		if at := status.GetUpdatedAt(); at != nil && at.AsTime().After(latest) {
			latest = at.AsTime()
		}
	}
	return latest
}

func ulidTime(text string) time.Time {
	id, err := ulid.ParseStrict(text)
	if err != nil {
		return time.Time{}
	}
	return id.Timestamp()
}
