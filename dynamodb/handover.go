package dynamodb

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/ashlar-dev/storage/internal/handover"
)

var _ handover.Store = (*Backend)(nil)

const (
	// permission is how long a handle may write after it has looked that there is no fence.
	permission = 5 * time.Second
	// underWay is how long a request that was sent in time, and given up when the permission ended, may still take effect.
	underWay = 3 * time.Second
)

// permit is a handle's permission to write. To compare the fence with every write would double the price of each, so a handle
// looks at it now and then, and whoever closes the store waits until the last permission has run out.
type permit struct {
	until atomic.Pointer[time.Time] // with the monotonic clock's reading, where there is one
	mu    sync.Mutex                // held by the one who looks
}

// left is how long a permission still lasts. A machine that was suspended in the meantime has a monotonic clock that stood
// still, so the wall clock is asked too.
func left(until *time.Time, now time.Time) time.Duration {
	if until == nil {
		return 0
	}
	return min(until.Sub(now), until.Round(0).Sub(now.Round(0)), permission)
}

// permitted returns a context that ends with the permission to write, looking for a fence first where that is necessary.
func (b *Backend) permitted(ctx context.Context) (context.Context, context.CancelFunc, error) {
	p := &b.permit
	for {
		until := p.until.Load()
		switch rest := left(until, time.Now()); {
		case rest > permission/2, rest > 0 && !p.mu.TryLock(): // or another caller is looking
			ctx, cancel := context.WithDeadline(ctx, *until)
			return ctx, cancel, nil
		case rest <= 0:
			p.mu.Lock()
		}
		var err error
		if left(p.until.Load(), time.Now()) <= permission/2 {
			err = b.renew(ctx)
		}
		p.mu.Unlock()
		if err != nil {
			return nil, nil, err
		}
	}
}

// renew looks for the fence.
func (b *Backend) renew(ctx context.Context) error {
	until := time.Now().Add(permission)
	it, err := b.getItem(ctx, true, b.fence())
	if err != nil {
		return err
	}
	if it != nil {
		b.permit.until.Store(nil)
		return handover.Refused(string(it.bytes(attrData)))
	}
	b.permit.until.Store(&until)
	return nil
}

// Fence closes the store for writing, for the tool that moves its data to another one. It takes some seconds, until every handle
// has looked.
func (b *Backend) Fence(ctx context.Context, target string) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	it := b.fence()
	it[attrData] = binaryValue([]byte(target))
	_, err = call(ctx, func(option func(*dynamodb.Options)) error {
		_, err := b.db.PutItem(ctx, &dynamodb.PutItemInput{TableName: &b.table, Item: it}, option)
		return err
	})
	if err != nil {
		return err
	}
	if !sleep(ctx, permission+underWay) {
		return inconsistent(ctx, errors.New("other processes may not have noticed the fence yet"))
	}
	return nil
}

// Unfence opens the store again.
func (b *Backend) Unfence(ctx context.Context) error {
	return b.dropItem(ctx, b.fence(), "")
}

// Fenced tells whether the store is closed for writing, and where its data went.
func (b *Backend) Fenced(ctx context.Context) (target string, fenced bool, err error) {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return "", false, err
	}
	defer done()
	it, err := b.getItem(ctx, true, b.fence())
	return string(it.bytes(attrData)), it != nil, err
}

// ReadJournal returns a note of the tool that moves data, and its revision.
func (b *Backend) ReadJournal(ctx context.Context, name string) (value []byte, revision string, err error) {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return nil, "", err
	}
	defer done()
	it, err := b.getItem(ctx, true, b.note(name))
	return it.bytes(attrData), hex.EncodeToString(it.bytes(attrStamp)), err
}

// WriteJournal writes a note if it has that revision.
func (b *Backend) WriteJournal(ctx context.Context, name string, value []byte, revision string) (string, error) {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	next := make([]byte, 16)
	_, _ = rand.Read(next) // never fails
	it := b.note(name)
	it[attrData], it[attrStamp] = binaryValue(append([]byte{}, value...)), binaryValue(next)
	in := &dynamodb.PutItemInput{TableName: &b.table, Item: it}
	in.ConditionExpression, in.ExpressionAttributeValues = atRevision(revision)
	// Repeated after a lost answer, it may meet itself; the caller then reads.
	_, err = call(ctx, func(option func(*dynamodb.Options)) error {
		_, err := b.db.PutItem(ctx, in, option)
		return err
	})
	if hasCode(err, "ConditionalCheckFailedException") {
		return "", handover.Conflict(name)
	}
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(next), nil
}

// atRevision is the condition that a note has a revision, or does not exist.
func atRevision(revision string) (*string, item) {
	if revision == "" {
		return aws.String("attribute_not_exists(pk)"), nil
	}
	b, err := hex.DecodeString(revision)
	if err != nil || len(b) == 0 {
		b = []byte{0} // no note has it
	}
	return aws.String("v = :v"), item{":v": binaryValue(b)}
}

// DeleteJournal removes a note if it has that revision.
func (b *Backend) DeleteJournal(ctx context.Context, name, revision string) error {
	err := b.dropItem(ctx, b.note(name), revision)
	if hasCode(err, "ConditionalCheckFailedException") {
		if _, now, err := b.ReadJournal(ctx, name); err != nil || now == "" {
			return err // it is not there any more
		}
		return handover.Conflict(name)
	}
	return err
}

// dropItem deletes an item, which has to have a revision unless that is empty.
func (b *Backend) dropItem(ctx context.Context, keys item, revision string) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	in := &dynamodb.DeleteItemInput{TableName: &b.table, Key: keys}
	if revision != "" {
		in.ConditionExpression, in.ExpressionAttributeValues = atRevision(revision)
	}
	_, err = call(ctx, func(option func(*dynamodb.Options)) error {
		_, err := b.db.DeleteItem(ctx, in, option)
		return err
	})
	return err
}
