package dynamodb

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// Apply implements driver.Driver.
func (b *handle) Apply(ctx context.Context, mutations []driver.Mutation) error {
	m := &mutations[0]
	switch {
	case len(mutations) > 1 || m.Verb == driver.Check:
		return b.commit(ctx, mutations)
	case m.Verb == driver.Write:
		return b.write(ctx, m)
	case m.Uid == "":
		return nil // no resource has an empty uid
	default:
		return b.delete(ctx, m)
	}
}

// refuse is why a mutation is refused where this is stored, nil if it is not.
func refuse(m *driver.Mutation, h *head) error {
	if _, err := m.Decide(h.stored()); err != nil {
		return &storage.OpError{Err: err}
	}
	return nil
}

func (b *handle) write(ctx context.Context, m *driver.Mutation) error {
	var base *stamp
	if m.Version != "" {
		var ok bool
		if base, ok = parseVersion(m.Version); !ok {
			return b.refuseForeign(ctx, m)
		}
	} else if err := b.register(ctx, m.Key); err != nil {
		return err
	}
	for dead := false; ; {
		c, err := b.planWrite(m.Key, m.Resource, base, dead, b.clock.now())
		if err != nil {
			return err
		}
		old, err := b.apply(ctx, c)
		if err == nil {
			b.applied(c)
			m.Written = c.next.version()
			return nil
		}
		if errors.Is(err, errComposed) && !errors.Is(err, storage.ErrInconsistent) && sleep(ctx, time.Millisecond) {
			continue
		}
		if !errors.Is(err, errCondition) {
			return err
		}
		b.seen.note(m.Key, old)
		err = refuse(m, old)
		switch {
		case err != nil:
			return err
		case old != nil && !old.live && m.Version == "":
			base, dead = old.stamp, true // a tombstone: go on with its chain
		case old == nil && dead:
			base, dead = nil, false
		case ctx.Err() != nil:
			return inconsistent(ctx, nil)
		}
	}
}

// applied does what follows a successful change.
func (b *handle) applied(c *change) {
	b.seen.noteState(c.key, c.next.count, c.res != nil)
	b.source.wake()
}

// refuseForeign finds out why a mutation with a version that this store never made is refused.
func (b *handle) refuseForeign(ctx context.Context, m *driver.Mutation) error {
	h, _, err := b.get(ctx, storage.StrongConsistency, m.Key)
	if err != nil {
		return err
	}
	if err := refuse(m, h); err != nil || m.Verb == driver.Delete {
		return err
	}
	return &storage.OpError{Err: storage.ErrCASFailure}
}

func (b *handle) delete(ctx context.Context, m *driver.Mutation) error {
	base, ok := parseVersion(m.Version)
	if !ok {
		return b.refuseForeign(ctx, m)
	}
	c := b.planDelete(m.Key, m.Uid, base, b.clock.now())
	old, err := b.apply(ctx, c)
	for errors.Is(err, errComposed) && !errors.Is(err, storage.ErrInconsistent) && sleep(ctx, time.Millisecond) {
		c = b.planDelete(m.Key, m.Uid, base, b.clock.now())
		old, err = b.apply(ctx, c)
	}
	if err == nil {
		b.applied(c)
		return nil
	}
	if !errors.Is(err, errCondition) {
		return err
	}
	b.seen.note(m.Key, old)
	return refuse(m, old)
}

// errCondition says that the condition of a change does not hold, and that the change was not made.
var errCondition = errors.New("the condition does not hold")

// apply carries out a change. On errCondition old is what is stored instead, nil for nothing.
//
// It asks again until the outcome is known. That cannot do harm: a request that was carried out already finds its own stamp, not
// its base. So a failed condition means that the change was made before if the stored stamp is ours or follows ours, and that it
// was not made otherwise, unless more writes than the ring remembers came between.
func (b *handle) apply(ctx context.Context, c *change) (old *head, err error) {
	var refusal item
	maybe, err := b.call(ctx, func(option func(*dynamodb.Options)) error {
		return b.permitted(ctx, func(g *grant) error {
			if c.alone() && g.epoch == nil {
				return b.putItem(ctx, c, &refusal, option, g.option, c.fresh)
			}
			reasons, err := b.transact(ctx, g, c.next.token, c.items(b, true, b.clock.now()), option, c.fresh)
			if len(reasons) > 0 {
				refusal = reasons[0].Item
			}
			return err
		})
	})
	if !errors.Is(err, errCondition) {
		if err != nil && maybe && !errors.Is(err, storage.ErrInconsistent) {
			return nil, inconsistent(ctx, err)
		}
		return nil, err
	}
	if len(refusal) > 0 {
		if old, err = b.head(refusal); err != nil {
			return nil, err
		}
	}
	made, err := c.made(old, maybe)
	switch {
	case err != nil:
		return nil, err
	case made:
		return nil, nil
	}
	return old, errCondition
}

// composedFor is how long a change may be sent after it was composed. Its count holds the time, by which readers tell for how long
// a replica may not have it; a process that was stopped in between composes it anew.
const composedFor = 5 * time.Minute

// errComposed says that a change was not sent because it was composed too long ago.
var errComposed = errors.New("the request was composed too long ago")

// fresh keeps a change from being sent too long after it was composed.
func (c *change) fresh(o *dynamodb.Options) {
	signedBy("AshlarComposed", c.composed.Add(composedFor), errComposed)(o)
}

// made reports whether the change was made although its condition does not hold (any more). maybe says that an earlier attempt may
// have been carried out.
func (c *change) made(old *head, maybe bool) (bool, error) {
	switch {
	case old == nil:
		return false, nil // what was made and then deleted leaves a tombstone for hours
	case old.stamp.follows(c.next.token):
		return true, nil
	case !maybe, len(old.stamp.ring) < ringSize, old.stamp.count <= c.next.count+ringSize:
		return false, nil // else more than ringSize writes would have followed, each counting one up
	case c.base != nil && old.stamp.follows(c.base.token):
		return false, nil
	}
	return false, fmt.Errorf("%w: the answer was lost, and the resource was written too often since to tell what became of the request", storage.ErrInconsistent)
}

func (b *handle) putItem(ctx context.Context, c *change, refusal *item, options ...func(*dynamodb.Options)) error {
	expression, values := c.condition()
	out, err := b.db.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &b.table, Item: c.put,
		ConditionExpression: &expression, ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		ReturnConsumedCapacity:              b.opts.capacity(),
	}, options...)
	var condition *types.ConditionalCheckFailedException
	if errors.As(err, &condition) {
		*refusal = condition.Item
		return &conditionError{err}
	}
	if err == nil {
		b.opts.spent(out.ConsumedCapacity)
	}
	return err
}

// conditionError passes through call as a refusal, without losing the exception.
type conditionError struct{ error }

func (e *conditionError) Unwrap() error        { return e.error }
func (e *conditionError) Is(target error) bool { return target == errCondition }

// transact sends a transaction, with the condition of a fence that is announced. Its token makes DynamoDB itself recognise a
// repetition for ten minutes; with another condition it is another transaction, and has another token. On errCondition the reasons
// line up with the items.
func (b *handle) transact(ctx context.Context, g *grant, token [16]byte, items []types.TransactWriteItem, options ...func(*dynamodb.Options)) ([]types.CancellationReason, error) {
	own := len(items)
	if g.epoch != nil {
		items = append(items[:own:own], b.gate(g.fence))
		sum := sha256.Sum256(append(item(items[own].ConditionCheck.Key).bytes(attrPK), token[:]...))
		token = [16]byte(sum[:16])
	}
	out, err := b.db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		TransactItems:          items,
		ClientRequestToken:     aws.String(base64.RawURLEncoding.EncodeToString(token[:])),
		ReturnConsumedCapacity: b.opts.capacity(),
	}, append(options, g.option)...)
	var cancelled *types.TransactionCanceledException
	if errors.As(err, &cancelled) {
		reasons, err := whyCancelled(cancelled, err)
		if len(reasons) > own && aws.ToString(reasons[own].Code) == "ConditionalCheckFailed" {
			return nil, errGateShut
		}
		return reasons, err
	}
	if err == nil {
		for i := range out.ConsumedCapacity {
			b.opts.spent(&out.ConsumedCapacity[i])
		}
	}
	return nil, err
}

// whyCancelled turns the reasons into an error that call understands: a failed condition or worse settles it, a conflict with
// another transaction or throttling does not.
func whyCancelled(cancelled *types.TransactionCanceledException, err error) ([]types.CancellationReason, error) {
	condition := false
	for _, r := range cancelled.CancellationReasons {
		switch aws.ToString(r.Code) {
		case "", "None":
		case "ConditionalCheckFailed":
			condition = true
		case "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded":
			return nil, &types.TransactionInProgressException{Message: aws.String(aws.ToString(r.Code) + ": " + aws.ToString(r.Message))}
		default:
			return nil, err
		}
	}
	if !condition {
		return nil, err
	}
	return cancelled.CancellationReasons, &conditionError{err}
}

// register enters a type into the registry, once for each process, before the first resource of it is created.
func (b *handle) register(ctx context.Context, k key.Key) error {
	kind := storage.UnversionedType{Group: k.Group, Kind: k.Kind}
	if _, known := b.kindsKnown.Load(kind); known {
		return nil
	}
	_, err := b.call(ctx, func(option func(*dynamodb.Options)) error {
		// A put that changes nothing leaves no record in the stream.
		_, err := b.db.PutItem(ctx, &dynamodb.PutItemInput{TableName: &b.table, Item: b.registered(k.Group, k.Kind)}, option)
		return err
	})
	if err == nil {
		b.kindsKnown.Store(kind, true)
	}
	return err
}
