package streams

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// shards calls the stream's API.
type shards struct {
	*Config
	stream string
	tree   *tree
	large  atomic.Int32 // number of records that exceeded a page's bytes; 0: none recently
}

// callWithTimeout makes one request and waits at most timeout for its answer, because the reader's context has no deadline. A missing answer is
// an outage.
func callWithTimeout[T any](ctx context.Context, timeout time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return call(ctx)
}

// list lists the stream's shards, all pages of it, and updates the tree.
func (s *shards) list(ctx context.Context, keep *Position) (*listing, error) {
	l := &listing{parents: map[string]string{}, closed: map[string]bool{}}
	var start *string
	for {
		out, err := callWithTimeout(ctx, s.Timeout, func(ctx context.Context) (*dynamodbstreams.DescribeStreamOutput, error) {
			return s.Client.DescribeStream(ctx, &dynamodbstreams.DescribeStreamInput{StreamArn: &s.stream, ExclusiveStartShardId: start})
		})
		if err != nil {
			return nil, historyLost(err)
		}
		s.Clock.Observe(out.ResultMetadata)
		l.add(out.StreamDescription)
		if start = out.StreamDescription.LastEvaluatedShardId; aws.ToString(start) == "" {
			break
		}
		// DynamoDB allows ten of these calls a second for the whole account.
		if !request.Sleep(ctx, 120*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
	s.tree.update(l.parents, keep)
	return l, nil
}

// next returns the positions at which a reader at p starts further shards. A child is read from its beginning. In a shard without a
// parent, or with a deleted one, p is known to contain only the records acknowledged before asOf. more reports that further shards
// must wait for a listing that contains their parents.
func (s *shards) next(ctx context.Context, p *Position) (places []shardPosition, more bool, err error) {
	children, roots, unlisted := s.tree.ready(p)
	for shard, parent := range unlisted {
		switch _, err := s.iterator(ctx, shardPosition{shard: parent}); {
		case err == nil:
			more = true
		case errors.Is(err, storage.ErrCompacted):
			s.tree.orphan(shard)
			roots = append(roots, shard)
		default:
			return nil, false, err
		}
	}
	for _, shard := range children {
		places = append(places, shardPosition{shard: shard})
	}
	for _, shard := range roots {
		places = append(places, shardPosition{shard, since(p.asOf)})
	}
	return places, more, nil
}

// iterator opens a shard at a position.
func (s *shards) iterator(ctx context.Context, at shardPosition) (string, error) {
	in := &dynamodbstreams.GetShardIteratorInput{StreamArn: &s.stream, ShardId: &at.shard}
	if isRecordNumber(at.seq) {
		in.ShardIteratorType, in.SequenceNumber = types.ShardIteratorTypeAfterSequenceNumber, &at.seq
	} else {
		in.ShardIteratorType = types.ShardIteratorTypeTrimHorizon
	}
	return s.openShard(ctx, in)
}

// latest opens a shard at its end.
func (s *shards) latest(ctx context.Context, shard string) (string, error) {
	return s.openShard(ctx, &dynamodbstreams.GetShardIteratorInput{
		StreamArn: &s.stream, ShardId: &shard, ShardIteratorType: types.ShardIteratorTypeLatest,
	})
}

func (s *shards) openShard(ctx context.Context, in *dynamodbstreams.GetShardIteratorInput) (string, error) {
	out, err := callWithTimeout(ctx, s.Timeout, func(ctx context.Context) (*dynamodbstreams.GetShardIteratorOutput, error) {
		return s.Client.GetShardIterator(ctx, in)
	})
	if err != nil {
		return "", historyLost(err)
	}
	return aws.ToString(out.ShardIterator), nil
}

// page is one answer of GetRecords.
type page struct {
	records    []types.Record
	next       string
	shardEnded bool      // the shard is closed and was read to its end
	full       bool      // more records are likely
	answerTime time.Time // AWS's time of the answer
}

// fetch reads a page from a position. An iterator expires after some minutes and is then replaced.
func (s *shards) fetch(ctx context.Context, at shardPosition, iterator string) (*page, error) {
	limit := s.maxRecords()
	for fresh := false; ; fresh = true {
		if iterator == "" {
			var err error
			if iterator, err = s.iterator(ctx, at); err != nil {
				return nil, err
			}
		}
		out, err := callWithTimeout(ctx, s.Timeout, func(ctx context.Context) (*dynamodbstreams.GetRecordsOutput, error) {
			return s.Client.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: &iterator, Limit: &limit})
		})
		if request.HasCode(err, "ExpiredIteratorException") && !fresh {
			iterator = ""
			continue
		}
		if err != nil {
			return nil, historyLost(err)
		}
		p := &page{
			records: out.Records, next: aws.ToString(out.NextShardIterator), full: len(out.Records) >= int(limit),
			answerTime: s.Clock.Observe(out.ResultMetadata),
		}
		p.shardEnded = p.next == ""
		if t, ok := sinceTime(at.seq); ok {
			for len(p.records) > 0 && creationTime(&p.records[0]).Before(t) {
				p.records, p.full = p.records[1:], true
			}
		}
		return p, nil
	}
}

// maxRecords is the maximum that GetRecords returns.
const maxRecords = 1000

// maxRecords returns the number of records to request. Records beyond a page's size limit are requested again, and use memory until
// then.
func (s *shards) maxRecords() int32 {
	if large := s.large.Load(); large > 0 {
		return min(large, maxRecords)
	}
	return maxRecords
}

// recordPageSize records that a page held n records, and whether more were cut off.
func (s *shards) recordPageSize(n int, cut bool) {
	if cut {
		s.large.Store(int32(max(n, 1)))
	} else if int32(n) >= s.maxRecords() {
		s.large.Store(min(2*s.maxRecords(), maxRecords))
	}
}

// historyLost recognises the errors that mean deleted history.
func historyLost(err error) error {
	switch {
	case request.HasCode(err, "TrimmedDataAccessException"):
		return fmt.Errorf("%w: the stream has been trimmed: %w", storage.ErrCompacted, request.Plain(err))
	case request.HasCode(err, "ResourceNotFoundException"):
		return fmt.Errorf("%w: the stream or one of its shards does not exist: %w", storage.ErrCompacted, request.Plain(err))
	case request.HasCode(err, "ValidationException"):
		return fmt.Errorf("%w: the position is unknown to the stream: %w", storage.ErrCompacted, request.Plain(err))
	}
	return request.Plain(err)
}

// errOtherStream returns the error of a position in an earlier stream of the table.
func errOtherStream() error {
	return fmt.Errorf("%w: the table has a different stream now (it was disabled and enabled, or the table was restored)", storage.ErrCompacted)
}

func creationTime(r *types.Record) time.Time {
	if r.Dynamodb == nil {
		return time.Time{}
	}
	return aws.ToTime(r.Dynamodb.ApproximateCreationDateTime)
}

// events converts a page into events, and returns the position after it. It ends the page early if the resources have too many
// bytes, which may be compressed or in parts and therefore not in the records, and before a record that cannot be decoded now. The
// rest of the page is fetched again.
//
// An unread shard is read from its oldest available record. That is its first record only while the stream retains the time of the
// position: the process may have been suspended since, or catching up may have taken long. answered is the time of an earlier answer for
// the shard, or its parent, that came before the page; zero for none.
func (s *shards) events(ctx context.Context, pos *Position, shard string, p *page, answered time.Time) (*Position, []*Event, error) {
	if at, _ := pos.get(shard); !isRecordNumber(at) && s.Clock.Now().Sub(maxTime(pos.asOf, answered)) > shardMemory {
		return nil, nil, fmt.Errorf("%w: the beginning of a shard may have been trimmed: the position is older than the stream's retention of %v", storage.ErrCompacted, shardMemory)
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
			p.records, p.next, p.shardEnded, p.full = p.records[:i], "", false, true
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
	s.recordPageSize(len(p.records), cut)
	switch {
	case p.shardEnded:
		pos = pos.with(shard, shardEnd)
	case last != "":
		pos = pos.with(shard, last)
	}
	return pos, events, nil
}

func maxTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// event converts a record into an event, or nil if it is no change. pos is the position before the page.
func (s *shards) event(ctx context.Context, pos *Position, shard string, r *types.Record) (*Event, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	ev, count, err := s.Table.Event(ctx, r)
	if ev == nil || err != nil {
		return nil, err
	}
	ev.At = &Position{
		stream: pos.stream, shards: pos.shards, asOf: pos.asOf,
		shard: shard, seq: aws.ToString(r.Dynamodb.SequenceNumber), count: count, creationTime: creationTime(r),
	}
	return ev, nil
}
