package dynamodb

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/ashlar-dev/storage"
)

// anchorTime bounds the anchoring. What it did not reach stays a place given by time.
const anchorTime = 3 * time.Second

// anchor finds the numbers of the places where the reader stands. An iterator at the end of a shard has none until a record
// arrives, and a cursor needs one: so ticks are written, small items that exist for the record that they leave. Which shard a
// tick's record goes to is DynamoDB's choice, so several are written where there are several shards; a shard that none reaches
// keeps a place given by time, from which a resumed watch may see a few seconds again.
func (r *reader) anchor(ctx context.Context) error {
	deadline := time.Now().Add(anchorTime)
	for ticked := 0; ; {
		adrift := 0
		for _, pl := range r.position().shards {
			if rank(pl.seq) == 1 {
				adrift++
			}
		}
		if adrift == 0 || time.Now().After(deadline) {
			return nil
		}
		if ticked == 0 {
			if ticked = min(4*adrift-3, 24); !r.tick(ctx, ticked) {
				return nil // a reader without the right to write
			}
		}
		_, pos, full, err := r.poll(ctx)
		if pos != nil {
			r.setPosition(pos)
		}
		if err == nil {
			err = r.follow(ctx, false)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, storage.ErrCompacted), errors.Is(err, errStreamEnded):
			return err
		case full:
			continue
		}
		if ticked--; !sleep(ctx, min(r.b.opts.Poll, 100*time.Millisecond)) {
			return ctx.Err()
		}
	}
}

// tick writes n ticks and tells whether it could.
func (r *reader) tick(ctx context.Context, n int) bool {
	ctx, cancel := context.WithTimeout(ctx, anchorTime)
	defer cancel()
	for range n {
		it := r.b.layout.tick(rand.N(1 << 12))
		token := newToken()
		it[attrData] = binaryValue(token[:])
		it[attrExpires] = expires(time.Now(), time.Hour)
		_, err := call(ctx, func(option func(*dynamodb.Options)) error {
			_, err := r.b.db.PutItem(ctx, &dynamodb.PutItemInput{TableName: &r.b.table, Item: it}, option)
			return err
		})
		if err != nil {
			return false
		}
	}
	return true
}
