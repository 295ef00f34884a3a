package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage"
)

// shardReader makes the calls of the stream's API.
type shardReader struct {
	b      *handle
	stream string
	lines  *lineage
	large  atomic.Int32 // so many records were too many bytes for a page; 0: none lately were
}

// maxRecords is the most that GetRecords returns.
const maxRecords = 1000

// most is how many records to ask for: what is cut off a page is asked for once more, and stands in memory until then.
func (s *shardReader) most() int32 {
	if large := s.large.Load(); large > 0 {
		return min(large, maxRecords)
	}
	return maxRecords
}

// fitted notes that so many records fitted in a page, and that more were cut off.
func (s *shardReader) fitted(n int, cut bool) {
	if cut {
		s.large.Store(int32(max(n, 1)))
	} else if int32(n) >= s.most() {
		s.large.Store(min(2*s.most(), maxRecords))
	}
}

// errStreamEnded ends all watches.
var errStreamEnded = errors.New("the stream was disabled: what was written since is not in any history")

// answer waits for one answer, for Timeout at most: the reader's context has no deadline, and what is never answered is an outage.
func answer[T any](ctx context.Context, b *handle, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	return ask(ctx)
}

// page is one answer of GetRecords.
type page struct {
	records []types.Record
	next    string
	ended   bool // the shard is closed and was read to its end
	full    bool // there is probably more
}

// latestStream returns the ARN of the table's stream.
func (b *handle) latestStream(ctx context.Context) (string, error) {
	var arn string
	_, err := b.call(ctx, func(option func(*dynamodb.Options)) error {
		out, err := b.db.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &b.table}, option)
		if err != nil {
			return err
		}
		if err := checkStream(out.Table.StreamSpecification); err != nil {
			return &dynamodbtypes.ResourceNotFoundException{Message: aws.String(err.Error())}
		}
		arn = aws.ToString(out.Table.LatestStreamArn)
		return nil
	})
	return arn, err
}

// listing is what DescribeStream says.
type listing struct {
	parents  map[string]string
	closed   map[string]bool
	disabled bool
}

// describe lists the stream's shards, all pages of it, and updates the lineage.
func (s *shardReader) describe(ctx context.Context, keep *position) (*listing, error) {
	l := &listing{parents: map[string]string{}, closed: map[string]bool{}}
	var start *string
	for {
		out, err := answer(ctx, s.b, func(ctx context.Context) (*dynamodbstreams.DescribeStreamOutput, error) {
			return s.b.streams.DescribeStream(ctx, &dynamodbstreams.DescribeStreamInput{StreamArn: &s.stream, ExclusiveStartShardId: start})
		})
		if err != nil {
			return nil, s.lost(err)
		}
		s.b.clock.observe(out.ResultMetadata)
		d := out.StreamDescription
		l.disabled = d.StreamStatus == types.StreamStatusDisabled || d.StreamStatus == types.StreamStatusDisabling
		for _, shard := range d.Shards {
			id := aws.ToString(shard.ShardId)
			l.parents[id] = aws.ToString(shard.ParentShardId)
			l.closed[id] = shard.SequenceNumberRange != nil && aws.ToString(shard.SequenceNumberRange.EndingSequenceNumber) != ""
		}
		if start = d.LastEvaluatedShardId; aws.ToString(start) == "" {
			break
		}
		// DynamoDB allows ten of these calls a second for the whole account.
		if !sleep(ctx, 120*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
	s.lines.update(l.parents, keep)
	return l, nil
}

// heirs returns the places where a reader at p goes on in shards that it has not begun. A child is read from its beginning; of a
// shard whose parent is gone, or that has none, all that p knows is what was acknowledged before asOf. more says that there are
// others, which have to wait for a listing that does not leave out their parents.
func (s *shardReader) heirs(ctx context.Context, p *position) (places []place, more bool, err error) {
	children, roots, unlisted := s.lines.heirs(p)
	for shard, parent := range unlisted {
		switch _, err := s.iterator(ctx, place{shard: parent}); {
		case err == nil:
			more = true
		case errors.Is(err, storage.ErrCompacted):
			s.lines.orphan(shard)
			roots = append(roots, shard)
		default:
			return nil, false, err
		}
	}
	for _, shard := range children {
		places = append(places, place{shard: shard})
	}
	for _, shard := range roots {
		places = append(places, place{shard, since(p.asOf)})
	}
	return places, more, nil
}

// open returns where a reader begins that wants all that comes after asOf: in the shards that are open, but for those that are
// listed beside a forebear that is open, too, and come after it; and at the end of those that have no children yet.
func (l *listing) open(asOf time.Time) []place {
	parent := map[string]bool{}
	for _, p := range l.parents {
		parent[p] = true
	}
	var places []place
	for shard := range l.parents {
		switch {
		case l.closed[shard] && parent[shard], l.openForebear(shard):
		case l.closed[shard]:
			places = append(places, place{shard, ended})
		default:
			places = append(places, place{shard, since(asOf)})
		}
	}
	return places
}

func (l *listing) openForebear(shard string) bool {
	for p, listed := l.parents[shard], true; listed && p != ""; {
		if _, listed = l.parents[p]; listed && !l.closed[p] {
			return true
		}
		p = l.parents[p]
	}
	return false
}

// iterator opens a shard at a place.
func (s *shardReader) iterator(ctx context.Context, at place) (string, error) {
	in := &dynamodbstreams.GetShardIteratorInput{StreamArn: &s.stream, ShardId: &at.shard}
	if numbered(at.seq) {
		in.ShardIteratorType, in.SequenceNumber = types.ShardIteratorTypeAfterSequenceNumber, &at.seq
	} else {
		in.ShardIteratorType = types.ShardIteratorTypeTrimHorizon
	}
	return s.place(ctx, in)
}

// latest opens a shard at its end.
func (s *shardReader) latest(ctx context.Context, shard string) (string, error) {
	return s.place(ctx, &dynamodbstreams.GetShardIteratorInput{
		StreamArn: &s.stream, ShardId: &shard, ShardIteratorType: types.ShardIteratorTypeLatest,
	})
}

func (s *shardReader) place(ctx context.Context, in *dynamodbstreams.GetShardIteratorInput) (string, error) {
	out, err := answer(ctx, s.b, func(ctx context.Context) (*dynamodbstreams.GetShardIteratorOutput, error) {
		return s.b.streams.GetShardIterator(ctx, in)
	})
	if err != nil {
		return "", s.lost(err)
	}
	return aws.ToString(out.ShardIterator), nil
}

// fetch reads a page from a place. An iterator lives for some minutes; one that has expired is made anew from the place.
func (s *shardReader) fetch(ctx context.Context, at place, iterator string) (*page, error) {
	most := s.most()
	for fresh := false; ; fresh = true {
		if iterator == "" {
			var err error
			if iterator, err = s.iterator(ctx, at); err != nil {
				return nil, err
			}
		}
		out, err := answer(ctx, s.b, func(ctx context.Context) (*dynamodbstreams.GetRecordsOutput, error) {
			return s.b.streams.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: &iterator, Limit: &most})
		})
		if hasCode(err, "ExpiredIteratorException") && !fresh {
			iterator = ""
			continue
		}
		if err != nil {
			return nil, s.lost(err)
		}
		s.b.clock.observe(out.ResultMetadata)
		p := &page{records: out.Records, next: aws.ToString(out.NextShardIterator), full: len(out.Records) >= int(most)}
		p.ended = p.next == ""
		if t, ok := sinceTime(at.seq); ok {
			for len(p.records) > 0 && created(&p.records[0]).Before(t) {
				p.records, p.full = p.records[1:], true
			}
		}
		return p, nil
	}
}

func created(r *types.Record) time.Time {
	if r.Dynamodb == nil {
		return time.Time{}
	}
	return aws.ToTime(r.Dynamodb.ApproximateCreationDateTime)
}

// lost recognises the errors that say that history is gone.
func (s *shardReader) lost(err error) error {
	switch {
	case hasCode(err, "TrimmedDataAccessException"):
		return fmt.Errorf("%w: the stream has been trimmed: %w", storage.ErrCompacted, plain(err))
	case hasCode(err, "ResourceNotFoundException"):
		return fmt.Errorf("%w: the stream or a shard of it is gone: %w", storage.ErrCompacted, plain(err))
	case hasCode(err, "ValidationException"):
		return fmt.Errorf("%w: the stream does not know the position: %w", storage.ErrCompacted, plain(err))
	}
	return plain(err)
}
