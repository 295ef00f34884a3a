package dynamodb

import (
	"context"
	"errors"
	"fmt"
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
	b      *Backend
	stream string
	lines  *lineage
}

// errStreamEnded ends all watches.
var errStreamEnded = errors.New("the stream was disabled: what was written since is not in any history")

// page is one answer of GetRecords.
type page struct {
	records []types.Record
	next    string
	ended   bool // the shard is closed and was read to its end
}

// latestStream returns the ARN of the table's stream.
func (b *Backend) latestStream(ctx context.Context) (string, error) {
	var arn string
	_, err := call(ctx, func(option func(*dynamodb.Options)) error {
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
		out, err := s.b.streams.DescribeStream(ctx, &dynamodbstreams.DescribeStreamInput{StreamArn: &s.stream, ExclusiveStartShardId: start})
		if err != nil {
			return nil, s.lost(err)
		}
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
	parents := make(map[string]string, len(l.parents))
	for shard, parent := range l.parents {
		parents[shard] = parent
	}
	s.lines.update(parents, keep)
	return l, nil
}

// iterator opens a shard at a place.
func (s *shardReader) iterator(ctx context.Context, at place) (string, error) {
	in := &dynamodbstreams.GetShardIteratorInput{StreamArn: &s.stream, ShardId: &at.shard}
	if numbered(at.seq) {
		in.ShardIteratorType, in.SequenceNumber = types.ShardIteratorTypeAfterSequenceNumber, &at.seq
	} else {
		in.ShardIteratorType = types.ShardIteratorTypeTrimHorizon
	}
	return s.open(ctx, in)
}

// latest opens a shard at its end.
func (s *shardReader) latest(ctx context.Context, shard string) (string, error) {
	return s.open(ctx, &dynamodbstreams.GetShardIteratorInput{
		StreamArn: &s.stream, ShardId: &shard, ShardIteratorType: types.ShardIteratorTypeLatest,
	})
}

func (s *shardReader) open(ctx context.Context, in *dynamodbstreams.GetShardIteratorInput) (string, error) {
	out, err := s.b.streams.GetShardIterator(ctx, in)
	if err != nil {
		return "", s.lost(err)
	}
	return aws.ToString(out.ShardIterator), nil
}

// fetch reads a page from a place. An iterator lives for some minutes; one that has expired is made anew from the place.
func (s *shardReader) fetch(ctx context.Context, at place, iterator string) (*page, error) {
	for fresh := false; ; fresh = true {
		if iterator == "" {
			var err error
			if iterator, err = s.iterator(ctx, at); err != nil {
				return nil, err
			}
		}
		out, err := s.b.streams.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: &iterator})
		if hasCode(err, "ExpiredIteratorException") && !fresh {
			iterator = ""
			continue
		}
		if err != nil {
			return nil, s.lost(err)
		}
		p := &page{records: out.Records, next: aws.ToString(out.NextShardIterator)}
		p.ended = p.next == ""
		if t, ok := sinceTime(at.seq); ok {
			for len(p.records) > 0 && created(&p.records[0]).Before(t) {
				p.records = p.records[1:]
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
