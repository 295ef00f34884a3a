package dynamodb

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// A comparison with the fence in every write would make each a transaction, at twice the price. Instead, a handle reads the fence
// from time to time, and the result permits writes for a limited time:
//
//   - no fence: writes have no condition on the fence;
//   - an announced fence: the store is still open, and each write is a transaction with the condition that a random gate of the
//     fence is not closed;
//   - a closed fence: no writes, unless it admits the guard of a write. Then the guard is the write's only condition.
//
// A write is signed before the permission expires, and AWS accepts a delayed request for request.SignatureTTL after its signature.
// FenceWait is longer than both together, so when it has passed since the announcement, every request in flight has the condition. Then
// the gates are closed. After the last one no write is applied, however long it was delayed.
//
// Two transactions with a condition on the same item conflict, so there are many gates. Their keys contain the fence's epoch, so
// that a delayed request of one closing cannot affect another.
const (
	gates = 64
	// maxShutting limits the gates that are closed concurrently.
	maxShutting = 16
)

// The fence's item has its own epoch (attrVersion), the driver.Fence (attrData), and attrShut once it is closed.
const attrShut = "x"

// fence is the result of reading the fence.
type fence struct {
	epoch []byte // nil: there is no fence
	value driver.Fence
	shut  bool
}

// readFence returns the fence, and AWS's time of the read.
func (t *table) readFence(ctx context.Context) (fence, time.Time, error) {
	it, at, err := t.getAt(ctx, true, t.fence())
	return fenceOf(it), at, err
}

func fenceOf(it item) fence {
	return fence{epoch: it.bytes(attrVersion), value: driver.DecodeFence(string(it.bytes(attrData))), shut: it.bytes(attrShut) != nil}
}

// anyGate is a write's condition that a random gate of the announced fence is not closed.
func (t *table) anyGate(f fence) types.TransactWriteItem {
	return t.check(t.gate(f.epoch, mathrand.N(gates)), absent)
}

// errClosedMeanwhile means that another process has changed the fence while this process was closing the store.
var errClosedMeanwhile = fmt.Errorf("%w: the fence was removed, or closed for another target, while the store was being closed", storage.ErrCASFailure)

// closer closes a store for writing and opens it.
type closer struct {
	table *table
	notes *notes
	lease *writeLease
}

// fenceChange is a change of the fence's epoch, which is the revision of a note. It is part of the transaction that closes or opens
// the store.
type fenceChange struct {
	at   *string // required epoch, nil for any
	next []byte
}

// operation returns the change as an operation of a transaction.
func (c *closer) operation(change *fenceChange) types.TransactWriteItem {
	on := condition{}
	if change.at != nil {
		on = atRevision(*change.at)
	}
	return c.table.on(types.TransactWriteItem{Put: &types.Put{Item: c.notes.noteItem(driver.FenceNote, nil, change.next)}}, on)
}

// wasApplied reports whether the epoch shows that an attempt, whose answer was lost, has made the change.
func (change *fenceChange) wasApplied(epoch string) bool {
	return epoch == hex.EncodeToString(change.next)
}

// state returns the fence and its epoch at one moment.
func (c *closer) state(ctx context.Context) (f fence, epoch string, err error) {
	items, err := c.table.getAtomically(ctx, c.table.fence(), c.table.note(driver.FenceNote))
	if err != nil {
		return fence{}, "", err
	}
	return fenceOf(items[0]), hex.EncodeToString(items[1].bytes(attrVersion)), nil
}

// Fence implements driver.Mover. A fence that is only announced does not block writers.
func (c *closer) Fence(ctx context.Context) (driver.FenceState, error) {
	f, epoch, err := c.state(ctx)
	if err != nil {
		return driver.FenceState{}, err
	}
	return driver.FenceState{Fence: f.value, Closed: f.shut, Announced: f.epoch != nil && !f.shut, Epoch: epoch}, nil
}

// SetFence implements driver.Mover. The store stays open for FenceWait after the fence was announced; meanwhile writes are
// transactions, at twice the price. Then it is closed for all handles at once: no request that was signed before, or is still in
// flight, is applied. With a context without a deadline, SetFence takes the time that it needs; with a deadline that is too early
// it fails at once. If it fails before the store is closed, it withdraws the announcement. If that fails as well, the announcement
// stays, and blocks no writers. If several processes close the store concurrently, the first one to complete decides the target;
// those with another target fail with a conflict.
func (c *closer) SetFence(ctx context.Context, target *string) error {
	change := &fenceChange{next: newRevision()}
	if target == nil {
		return c.set(ctx, nil, change)
	}
	return c.set(ctx, &driver.Fence{Target: *target}, change)
}

// SetFenceAt implements driver.GuardedMover. It takes as long as SetFence. The epoch is compared before the announcement, and in the
// transaction that closes or opens the store.
func (c *closer) SetFenceAt(ctx context.Context, fence *driver.Fence, epoch string) (next string, err error) {
	change := &fenceChange{at: &epoch, next: newRevision()}
	err = c.step(ctx, func(ctx context.Context) error {
		_, now, err := c.notes.ReadNote(ctx, driver.FenceNote)
		if err == nil && now != epoch {
			err = driver.Conflict(driver.FenceNote)
		}
		return err
	})
	if err == nil {
		err = c.set(ctx, fence, change)
	}
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(change.next), nil
}

func (c *closer) set(ctx context.Context, value *driver.Fence, change *fenceChange) error {
	if value == nil {
		return c.step(ctx, func(ctx context.Context) error { return c.open(ctx, change) })
	}
	return c.shut(ctx, *value, change)
}

func (c *closer) shut(ctx context.Context, value driver.Fence, change *fenceChange) error {
	wait := c.table.opts.FenceWait
	if deadline, has := ctx.Deadline(); has && time.Until(deadline) < wait {
		if state, err := c.Fence(ctx); err != nil || !state.Closed {
			return errors.Join(err, fmt.Errorf("closing the store takes %v: %w", wait, context.DeadlineExceeded))
		}
	}
	f, since, err := c.announce(ctx, value)
	if err == nil && !f.shut {
		err = c.shutGates(ctx, f, value, since, change)
	}
	switch {
	case err != nil:
		return c.withdraw(ctx, f, err)
	case !f.shut:
		return nil
	}
	return c.putShut(ctx, f, value, versionEquals(f.epoch), change)
}

// open removes the fence and changes its epoch. It reads both again after a refusal: another process may have withdrawn an
// announcement, which does not change the epoch, or an attempt whose answer was lost may have succeeded.
func (c *closer) open(ctx context.Context, change *fenceChange) error {
	f, epoch, err := c.state(ctx)
	if err != nil {
		return err
	}
	for {
		c.lease.forget()
		fence := c.table.check(c.table.fence(), absent)
		if f.epoch != nil {
			fence = c.table.on(types.TransactWriteItem{Delete: &types.Delete{Key: c.table.fence()}}, versionEquals(f.epoch))
		}
		if _, err := c.table.transact(ctx, fence, c.operation(change)); !errors.Is(err, errCondition) {
			return err
		}
		now, nowEpoch, err := c.state(ctx)
		switch {
		case err != nil:
			return err
		case change.wasApplied(nowEpoch):
			return nil
		case change.at != nil && nowEpoch != *change.at:
			return driver.Conflict(driver.FenceNote)
		case change.at == nil && nowEpoch != epoch && !bytes.Equal(now.epoch, f.epoch):
			return nil // the fence was removed, perhaps by a lost attempt before the latest change; a newer fence stays
		}
		f, epoch = now, nowEpoch
	}
}

// step runs a step of a long operation, and bounds its time if the caller does not.
func (c *closer) step(ctx context.Context, do func(context.Context) error) error {
	if c.lease.lifetime.Err() != nil {
		return storage.ErrClosed
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.table.opts.Timeout)
		defer cancel()
	}
	return do(ctx)
}

// announce returns the existing fence, or announces one, and a time by AWS's clock when the fence certainly existed. After an
// error the fence may have been announced, and f has its value.
func (c *closer) announce(ctx context.Context, value driver.Fence) (f fence, at time.Time, err error) {
	it, epoch, own := c.table.fence(), make([]byte, 16), fence{}
	_, _ = rand.Read(epoch) // never fails
	it[attrVersion], it[attrData] = binaryValue(epoch), binaryValue([]byte(value.Encode()))
	err = c.step(ctx, func(ctx context.Context) (err error) {
		for {
			f, at, err = c.table.readFence(ctx)
			switch {
			case err != nil:
				return err
			case f.shut && f.value != value && own.epoch != nil: // it was open at the first read
				return errClosedMeanwhile
			case f.epoch != nil:
				return nil
			}
			own.epoch = epoch
			if err = c.table.put(ctx, it, absent); err != nil && !conditionFailed(err) {
				return err
			}
		}
	})
	if err != nil {
		f = own
	}
	return f, at, err
}

// withdraw removes an announcement, if there may be one, because of an error, which it returns. It is conditional on the fence
// being open: a concurrent caller that closed the same fence may have reported its success already.
func (c *closer) withdraw(ctx context.Context, f fence, err error) error {
	if f.epoch == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.table.opts.Timeout)
	defer cancel()
	c.lease.forget()
	if withdrawing := c.table.remove(ctx, c.table.fence(), fenceAnnounced(f.epoch)); withdrawing != nil && !conditionFailed(withdrawing) {
		err = errors.Join(err, fmt.Errorf("withdraw the announcement: %w", withdrawing))
	}
	return err
}

// fenceAnnounced is the condition that a fence exists and is not closed.
func fenceAnnounced(epoch []byte) condition {
	on := versionEquals(epoch)
	on.text += " AND attribute_not_exists(" + attrShut + ")"
	return on
}

// shutGates waits until every write in flight has the fence's condition, closes the gates, and closes the fence, unless another process
// has closed it with another value.
func (c *closer) shutGates(ctx context.Context, f fence, value driver.Fence, since time.Time, change *fenceChange) error {
	for {
		at, err := c.confirmFence(ctx, f)
		if err != nil {
			return err
		}
		rest := since.Add(c.table.opts.FenceWait).Sub(at)
		if rest <= 0 {
			break
		}
		if !request.Sleep(ctx, min(rest, c.table.opts.IdlePoll)) {
			return ctx.Err()
		}
	}
	var g errgroup.Group
	g.SetLimit(maxShutting)
	for n := range gates {
		it := c.table.gate(f.epoch, n)
		it[attrExpires] = expires(c.table.clock.Now(), retiredPartTTL)
		g.Go(func() error {
			put := types.TransactWriteItem{Put: &types.Put{TableName: &c.table.name, Item: it}}
			return c.step(ctx, func(ctx context.Context) error {
				_, err := c.table.transact(ctx, put) // a put outside a transaction may overtake a prepared one
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	err := c.putShut(ctx, f, value, fenceAnnounced(f.epoch), change)
	if !errors.Is(err, storage.ErrCASFailure) {
		return err
	}
	var now driver.FenceState
	readErr := c.step(ctx, func(ctx context.Context) (err error) {
		now, err = c.Fence(ctx)
		return err
	})
	if now.Closed && change.at == nil && now.Fence == value {
		return nil // by another process with the same value
	}
	return errors.Join(err, readErr)
}

// confirmFence returns a time by AWS's clock when the announced fence still existed.
func (c *closer) confirmFence(ctx context.Context, f fence) (at time.Time, err error) {
	err = c.step(ctx, func(ctx context.Context) error {
		var now fence
		now, at, err = c.table.readFence(ctx)
		if err == nil && !bytes.Equal(now.epoch, f.epoch) {
			err = errClosedMeanwhile
		}
		return err
	})
	return at, err
}

// shutFence returns the item of a closed fence.
func shutFence(t *table, epoch []byte, value driver.Fence) item {
	it := t.fence()
	it[attrVersion], it[attrData], it[attrShut] = binaryValue(epoch), binaryValue([]byte(value.Encode())), binaryValue([]byte{1})
	return it
}

// putShut replaces the fence by a closed one with the same internal epoch, on a condition. If the old fence admitted a guard that the new
// one does not admit, the guard holds no more.
func (c *closer) putShut(ctx context.Context, f fence, value driver.Fence, on condition, change *fenceChange) error {
	it := shutFence(c.table, f.epoch, value)
	items := []types.TransactWriteItem{c.table.on(types.TransactWriteItem{Put: &types.Put{Item: it}}, on), c.operation(change)}
	return c.step(ctx, func(ctx context.Context) error {
		for {
			all := items
			if admitted := f.value.Admits; admitted != "" && admitted != value.Admits {
				revocation, err := c.notes.revocation(ctx, admitted)
				if err != nil {
					return err
				}
				all = slices.Concat(items, revocation)
			}
			reasons, err := c.table.transact(ctx, all...)
			if !errors.Is(err, errCondition) {
				return err
			}
			switch _, epoch, err := c.state(ctx); {
			case err != nil:
				return err
			case change.wasApplied(epoch):
				return nil
			case slices.ContainsFunc(reasons[:min(len(reasons), len(items))], isConditionFailure):
				return errClosedMeanwhile
			}
			// The guard's note was written meanwhile.
		}
	})
}

// isConditionFailure reports whether an operation of a transaction failed because of its condition.
func isConditionFailure(r types.CancellationReason) bool {
	return aws.ToString(r.Code) == failedCondition
}

// writeLease is a handle's permission to write, which a read of the fence grants; see the comment at the top of the file.
type writeLease struct {
	table    *table
	registry *registry
	lifetime context.Context // of the handle
	lasts    time.Duration

	mu      sync.Mutex
	saw     fence
	until   time.Time     // by AWS's clock
	renewal *leaseRenewal // in flight

	admittedGuard driver.Guard // the last guard that a closed fence admitted
	admittedUntil time.Time    // by AWS's clock
}

func newWriteLease(life context.Context, t *table, r *registry) *writeLease {
	return &writeLease{table: t, registry: r, lifetime: life, lasts: min(30*time.Second, t.opts.FenceWait/8)}
}

// leaseRenewal is shared by all waiting callers. It continues when they leave.
type leaseRenewal struct {
	endCh chan struct{}
	err   error
}

// Reasons to repeat a request.
var (
	errNotPermitted = request.NewError(request.NotApplied, "the permission to write expired before the request was signed")
	errGateShut     = request.NewError(request.NotApplied, "the store is being closed for writing")
)

// grant permits one request.
type grant struct {
	fence
	until time.Time
}

// option prevents a request from being signed after the permission expires.
func (g *grant) option(o *dynamodb.Options) {
	request.SignBefore("AshlarPermitted", g.until, errNotPermitted)(o)
}

// with sends a write with permission, and with a guard or nil. It reads the fence if necessary.
func (p *writeLease) with(ctx context.Context, guard *driver.Guard, send func(g *grant) error) error {
	g := p.admission(guard)
	for {
		var l *leaseRenewal
		if g == nil {
			g, l = p.get()
		}
		if g != nil {
			err := send(g)
			if errors.Is(err, errNotPermitted) || errors.Is(err, errGateShut) {
				p.forget()
			}
			return err
		}
		select {
		case <-l.endCh:
		case <-ctx.Done():
			return fmt.Errorf("%w: the read of the fence was not answered", errNotPermitted)
		}
		switch {
		case p.lifetime.Err() != nil:
			return storage.ErrClosed
		case guard != nil && errors.Is(l.err, storage.ErrFenced):
			var err error
			if g, err = p.admit(ctx, guard); err != nil {
				return err
			}
		case l.err != nil && request.Classify(l.err) != request.Rejected:
			return fmt.Errorf("%w: read the fence: %w", errNotPermitted, l.err)
		case l.err != nil:
			return l.err
		}
	}
}

// get returns the permission, if there is one, or else the renewal in flight.
func (p *writeLease) get() (*grant, *leaseRenewal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := p.until.Sub(p.table.clock.Now())
	if rest <= p.lasts/2 && p.renewal == nil {
		p.renewal = &leaseRenewal{endCh: make(chan struct{})}
		go p.renew(p.renewal)
	}
	if rest > 0 {
		return &grant{p.saw, p.until}, nil
	}
	return nil, p.renewal
}

// forget makes the next write read the fence.
func (p *writeLease) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until, p.admittedUntil = time.Time{}, time.Time{}
}

// admission returns the permission of a guard that a closed fence admits, or nil. It is valid for one revision of the guard's note:
// whoever replaces the fence changes the revision in the same transaction, so the guard itself refuses later writes. A new revision
// needs a new read of the fence.
func (p *writeLease) admission(guard *driver.Guard) *grant {
	p.mu.Lock()
	defer p.mu.Unlock()
	if guard == nil || p.admittedGuard != *guard || !p.table.clock.Now().Before(p.admittedUntil) {
		return nil
	}
	return &grant{until: p.admittedUntil}
}

// admit reads the fence, and returns the permission of a guard that it admits, or nil if the store is open.
func (p *writeLease) admit(ctx context.Context, guard *driver.Guard) (*grant, error) {
	f, at, err := p.table.readFence(ctx)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: read the fence: %w", errNotPermitted, err)
	case !f.shut:
		return nil, nil
	}
	if err := f.value.Refusal(guard); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.admittedGuard, p.admittedUntil = *guard, at.Add(p.lasts)
	return &grant{until: p.admittedUntil}, nil
}

// renew reads the fence, and then the mark of the registry.
func (p *writeLease) renew(l *leaseRenewal) {
	ctx, cancel := context.WithTimeout(p.lifetime, p.table.opts.Timeout)
	defer cancel()
	saw, at, err := p.table.readFence(ctx)
	if err == nil {
		err = p.registry.refresh(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.saw, p.until = saw, at.Add(p.lasts)
	}
	if err == nil && saw.shut {
		p.until = time.Time{} // the next write reads the fence again
		err = saw.value.Refusal(nil)
	}
	p.renewal = nil
	l.err = err
	close(l.endCh)
}
