package streams

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
)

// listing is the result of DescribeStream.
type listing struct {
	parents        map[string]string
	closed         map[string]bool
	streamDisabled bool
}

// add adds a page of the result.
func (l *listing) add(d *types.StreamDescription) {
	l.streamDisabled = d.StreamStatus == types.StreamStatusDisabled || d.StreamStatus == types.StreamStatusDisabling
	for _, shard := range d.Shards {
		id := aws.ToString(shard.ShardId)
		l.parents[id] = aws.ToString(shard.ParentShardId)
		l.closed[id] = shard.SequenceNumberRange != nil && aws.ToString(shard.SequenceNumberRange.EndingSequenceNumber) != ""
	}
}

// position returns the start of a reader that needs every change after asOf. Open shards start at asOf; closed shards without children
// are at their end. A shard with an open ancestor is omitted, because the reader starts it after the ancestor.
func (l *listing) position(stream string, asOf time.Time) *Position {
	parent := map[string]bool{}
	for _, p := range l.parents {
		parent[p] = true
	}
	at := &Position{stream: stream, asOf: asOf}
	for shard := range l.parents {
		switch {
		case l.closed[shard] && parent[shard], l.openAncestor(shard):
		case l.closed[shard]:
			at = at.with(shard, shardEnd)
		default:
			at = at.with(shard, since(asOf))
		}
	}
	return at
}

// openAncestor reports whether an ancestor of the shard is open.
func (l *listing) openAncestor(shard string) bool {
	for p, listed := l.parents[shard], true; listed && p != ""; {
		if _, listed = l.parents[p]; listed && !l.closed[p] {
			return true
		}
		p = l.parents[p]
	}
	return false
}
