package streams

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

func created(r *types.Record) time.Time {
	if r.Dynamodb == nil {
		return time.Time{}
	}
	return aws.ToTime(r.Dynamodb.ApproximateCreationDateTime)
}

// events makes events of a page, and the position after it. It cuts the page short where the resources are too many bytes, most of
// which may not be in the records but compressed or in parts, and before a record that cannot be read now: the rest of the page is
// fetched again.
//
// A shard of which nothing was read is read from the oldest record that there is. It is the first only as long as the stream remembers
// the time of the position: a process may have stood still since, or the catching up have taken long.
func (s *shards) events(ctx context.Context, pos *Position, shard string, p *page) (*Position, []*Event, error) {
	if at, _ := pos.get(shard); !numbered(at) && s.Clock.Now().Sub(pos.asOf) > remembered {
		return nil, nil, fmt.Errorf("%w: the beginning of a shard may have been trimmed: the position is older than the %v that a stream remembers", storage.ErrCompacted, remembered)
	}
	var events []*Event
	last, size, cut := "", 0, false
	for i := range p.records {
		var ev *Event
		var err error
		if size < driver.PageBytes {
			ev, err = s.event(ctx, pos, shard, &p.records[i])
		}
		if err != nil && last == "" {
			return nil, nil, err
		}
		if err != nil || size >= driver.PageBytes {
			cut = err == nil
			p.records, p.next, p.ended, p.full = p.records[:i], "", false, true
			break
		}
		if p.records[i].Dynamodb.SequenceNumber != nil {
			last = *p.records[i].Dynamodb.SequenceNumber
		}
		if ev != nil {
			events = append(events, ev)
			size += ev.Size
		}
	}
	s.fitted(len(p.records), cut)
	switch {
	case p.ended:
		pos = pos.with(shard, ended)
	case last != "":
		pos = pos.with(shard, last)
	}
	return pos, events, nil
}

// event makes an event of a record, nil for one that is no change. pos is the position before the page.
func (s *shards) event(ctx context.Context, pos *Position, shard string, r *types.Record) (*Event, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	ev, count, err := s.Table.Event(ctx, r)
	if ev == nil || err != nil {
		return nil, err
	}
	ev.At = &Position{
		stream: pos.stream, shards: pos.shards, asOf: pos.asOf,
		shard: shard, seq: aws.ToString(r.Dynamodb.SequenceNumber), count: count,
	}
	return ev, nil
}
