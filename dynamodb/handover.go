package dynamodb

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/errgroup"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// SetFence implements driver.Mover. The store stays open for FenceWait after the fence was announced; writes are transactions
// meanwhile, at twice the price. Then it is closed for all handles at once: no request that was signed before, or is still on its way,
// takes effect. A context without a deadline gives it the time that it needs, and one whose deadline is too near is refused at once. If
// it fails before the store is closed, the announcement is withdrawn, or, where that fails too, left there, which keeps nobody from
// writing. Of several closings at a time the first one names the target; for another target the others fail with a conflict.
func (b *handle) SetFence(ctx context.Context, target *string) error {
	if target == nil {
		return b.reopen(ctx)
	}
	return b.closeStore(ctx, *target)
}

func (b *handle) closeStore(ctx context.Context, target string) error {
	if deadline, has := ctx.Deadline(); has && time.Until(deadline) < b.opts.FenceWait {
		if state, err := b.Fence(ctx); err != nil || !state.Closed {
			return errors.Join(err, fmt.Errorf("closing the store takes %v: %w", b.opts.FenceWait, context.DeadlineExceeded))
		}
	}
	f, since, err := b.announce(ctx, target)
	if err != nil {
		return b.withdraw(ctx, f, err)
	}
	if !f.shut {
		if err := b.shut(ctx, f, target, since); err != nil {
			return b.withdraw(ctx, f, err)
		}
		return nil
	}
	if f.target == target {
		return nil
	}
	return b.putFence(ctx, f, target, "v = :v")
}

// withdraw takes an announcement back, if there may be one, because of an error, which it returns.
func (b *handle) withdraw(ctx context.Context, f fence, err error) error {
	if f.epoch == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.opts.Timeout)
	defer cancel()
	if failed := b.dropFence(ctx, f, "v = :v AND attribute_not_exists("+attrShut+")"); failed != nil {
		err = errors.Join(err, fmt.Errorf("withdraw the announcement: %w", failed))
	}
	return err
}

// announce returns the fence that is there, or announces one, and AWS's time at which it was there for certain. With an error it
// returns the one that it may have announced.
func (b *handle) announce(ctx context.Context, target string) (fence, time.Time, error) {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return fence{}, time.Time{}, err
	}
	defer done()
	own := fence{}
	for it, epoch := b.newFence(target); ; {
		f, at, err := b.readFence(ctx)
		if err != nil {
			return own, at, err
		}
		switch {
		case f.shut && f.target != target && own.epoch != nil: // it was open at the first look
			return own, at, errClosedMeanwhile
		case f.epoch != nil:
			return f, at, nil
		}
		own.epoch = epoch
		_, err = b.call(ctx, func(option func(*dynamodb.Options)) error {
			_, err := b.db.PutItem(ctx, &dynamodb.PutItemInput{TableName: &b.table, Item: it, ConditionExpression: aws.String("attribute_not_exists(pk)")}, option)
			return err
		})
		if err != nil && !hasCode(err, "ConditionalCheckFailedException") {
			return own, time.Time{}, err
		}
	}
}

// shut waits until every write on its way has the fence's condition, shuts the gates, and closes the fence for target, unless
// somebody else has closed it for another one by then.
func (b *handle) shut(ctx context.Context, f fence, target string, since time.Time) error {
	for {
		at, err := b.stillThere(ctx, f)
		if err != nil {
			return err
		}
		rest := since.Add(b.opts.FenceWait).Sub(at)
		if rest <= 0 {
			break
		}
		if !sleep(ctx, min(rest, b.opts.IdlePoll)) {
			return ctx.Err()
		}
	}
	var g errgroup.Group
	g.SetLimit(maxFetches)
	for n := range gates {
		it := b.layout.gate(f.epoch, n)
		it[attrExpires] = expires(b.clock.now(), retiredLife)
		g.Go(func() error { return b.put(ctx, it) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	err := b.putFence(ctx, f, target, "v = :v AND attribute_not_exists("+attrShut+")")
	if !errors.Is(err, storage.ErrCASFailure) {
		return err
	}
	ctx, done, beginErr := b.begin(ctx)
	if beginErr != nil {
		return beginErr
	}
	defer done()
	now, lookErr := b.Fence(ctx)
	if lookErr == nil && now.Closed && now.Target == target {
		return nil // by an attempt whose answer was lost, or by somebody else for the same target
	}
	return errors.Join(err, lookErr)
}

// errClosedMeanwhile says that somebody else has changed the fence while this process was closing the store.
var errClosedMeanwhile = fmt.Errorf("%w: the fence was taken away, or closed for another target, while the store was being closed", storage.ErrCASFailure)

// stillThere returns AWS's time at which the announced fence was still there.
func (b *handle) stillThere(ctx context.Context, f fence) (time.Time, error) {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer done()
	now, at, err := b.readFence(ctx)
	if err == nil && !bytes.Equal(now.epoch, f.epoch) {
		err = errClosedMeanwhile
	}
	return at, err
}

// put stores an item that may be stored any number of times.
func (b *handle) put(ctx context.Context, it item) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = b.call(ctx, func(option func(*dynamodb.Options)) error {
		_, err := b.db.PutItem(ctx, &dynamodb.PutItemInput{TableName: &b.table, Item: it}, option)
		return err
	})
	return err
}

// putFence stores a closed fence in the place of the same one, on a condition.
func (b *handle) putFence(ctx context.Context, f fence, target, condition string) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	it := b.fence()
	it[attrStamp], it[attrData], it[attrShut] = binaryValue(f.epoch), binaryValue([]byte(target)), binaryValue([]byte{1})
	_, err = b.call(ctx, func(option func(*dynamodb.Options)) error {
		_, err := b.db.PutItem(ctx, &dynamodb.PutItemInput{
			TableName: &b.table, Item: it, ConditionExpression: &condition, ExpressionAttributeValues: item{":v": binaryValue(f.epoch)},
		}, option)
		return err
	})
	if hasCode(err, "ConditionalCheckFailedException") {
		return errClosedMeanwhile
	}
	return err
}

func (b *handle) reopen(ctx context.Context) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	f, _, err := b.readFence(ctx)
	if err != nil || f.epoch == nil {
		return err
	}
	return b.dropFence(ctx, f, "v = :v")
}

// dropFence removes this fence. If it is not there, it was removed, perhaps by an attempt whose answer was lost; another one is
// nobody's business here. A withdrawal has the condition that the fence is not closed, too: whoever closes the same one at the same
// time may have reported its success already.
func (b *handle) dropFence(ctx context.Context, f fence, condition string) error {
	b.permit.forget()
	_, err := b.call(ctx, func(option func(*dynamodb.Options)) error {
		_, err := b.db.DeleteItem(ctx, &dynamodb.DeleteItemInput{
			TableName: &b.table, Key: b.fence(), ConditionExpression: &condition, ExpressionAttributeValues: item{":v": binaryValue(f.epoch)},
		}, option)
		return err
	})
	if hasCode(err, "ConditionalCheckFailedException") {
		return nil
	}
	return err
}

// Fence implements driver.Mover. A fence that is only announced keeps nobody from writing.
func (b *handle) Fence(ctx context.Context) (driver.FenceState, error) {
	f, _, err := b.readFence(ctx)
	if err != nil || !f.shut {
		return driver.FenceState{}, err
	}
	return driver.FenceState{Target: f.target, Closed: true}, nil
}

// ReadNote implements driver.Mover.
func (b *handle) ReadNote(ctx context.Context, name string) (value []byte, revision string, err error) {
	it, err := b.getItem(ctx, true, b.note(name))
	return it.bytes(attrData), hex.EncodeToString(it.bytes(attrStamp)), err
}

// WriteNote implements driver.Mover.
func (b *handle) WriteNote(ctx context.Context, name string, value []byte, revision string) (string, error) {
	next := make([]byte, 16)
	_, _ = rand.Read(next) // never fails
	it := b.note(name)
	it[attrData], it[attrStamp] = binaryValue(append([]byte{}, value...)), binaryValue(next)
	in := &dynamodb.PutItemInput{TableName: &b.table, Item: it}
	in.ConditionExpression, in.ExpressionAttributeValues = atRevision(revision)
	// Repeated after a lost answer, it may meet itself; the caller then reads.
	_, err := b.call(ctx, func(option func(*dynamodb.Options)) error {
		_, err := b.db.PutItem(ctx, in, option)
		return err
	})
	if hasCode(err, "ConditionalCheckFailedException") {
		return "", driver.Conflict(name)
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

// DeleteNote implements driver.Mover.
func (b *handle) DeleteNote(ctx context.Context, name, revision string) error {
	err := b.dropItem(ctx, b.note(name), revision)
	if hasCode(err, "ConditionalCheckFailedException") {
		if _, now, err := b.ReadNote(ctx, name); err != nil || now == "" {
			return err // it is not there any more
		}
		return driver.Conflict(name)
	}
	return err
}

// dropItem deletes an item, which has to have a revision unless that is empty.
func (b *handle) dropItem(ctx context.Context, keys item, revision string) error {
	in := &dynamodb.DeleteItemInput{TableName: &b.table, Key: keys}
	if revision != "" {
		in.ConditionExpression, in.ExpressionAttributeValues = atRevision(revision)
	}
	_, err := b.call(ctx, func(option func(*dynamodb.Options)) error {
		_, err := b.db.DeleteItem(ctx, in, option)
		return err
	})
	return err
}
