package dynamodb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// To compare the fence with every write would make each a transaction, at twice the price. So a handle looks at the fence now and
// then, and what it saw permits it to write for a while:
//
//   - nothing: writes carry no condition on the fence;
//   - a fence that is announced: the store is open still, and each write is a transaction with the condition that one of the
//     fence's gates is not shut;
//   - a fence that is closed: no writes.
//
// A write is signed no later than permission after the look that permits it, and AWS accepts it for signatureLife after that, if
// it is held up. So FenceWait after the announcement there is no request any more that does not carry the condition. Then the
// gates are shut, and from the last one on no write takes effect, wherever it has been in between.
//
// Two transactions with a condition on one item get into each other's way, so there are many gates. Their keys have the fence's
// epoch in them, so that no late request of one closing has a part in another.
const gates = 64

// The fence's item has an epoch (attrStamp) that is its own, the target (attrData), and attrShut once it is closed.
const attrShut = "x"

// permission is how long after a look a write may be signed. It is short beside FenceWait, of which signatureLife is the most.
func (o *Options) permission() time.Duration { return min(30*time.Second, o.FenceWait/8) }

// fence is what a look saw.
type fence struct {
	epoch  []byte // nil: there is none
	target string
	shut   bool
}

func fenceOf(it item) fence {
	return fence{epoch: it.bytes(attrStamp), target: string(it.bytes(attrData)), shut: it.bytes(attrShut) != nil}
}

// permit is a handle's permission to write.
type permit struct {
	mu    sync.Mutex
	saw   fence
	until time.Time // by AWS's clock
	look  *look     // under way
}

// look is one for all who wait for it. It goes on when they leave.
type look struct {
	done chan struct{}
	err  error
}

// Reasons for asking again.
var (
	errNotPermitted = errors.New("the permission to write was over before the request was signed")
	errGateShut     = errors.New("the store is being closed for writing")
)

// grant permits one request.
type grant struct {
	fence
	until time.Time
}

// option keeps a request from being signed too late.
func (g *grant) option(o *dynamodb.Options) { signedBy("AshlarPermitted", g.until, errNotPermitted)(o) }

// permitted sends a write with the permission for it, looking for a fence where that is necessary.
func (b *handle) permitted(ctx context.Context, send func(g *grant) error) error {
	for {
		g, l := b.permit.get(b)
		if g != nil {
			err := send(g)
			if errors.Is(err, errNotPermitted) || errors.Is(err, errGateShut) {
				b.permit.forget()
			}
			return err
		}
		select {
		case <-l.done:
		case <-ctx.Done():
			return fmt.Errorf("%w: the look for a fence was not answered", errNotPermitted)
		}
		switch {
		case b.closed.Load():
			return storage.ErrClosed
		case l.err != nil && judge(l.err) != refused:
			return fmt.Errorf("%w: look for a fence: %w", errNotPermitted, l.err)
		case l.err != nil:
			return l.err
		}
	}
}

// get returns the permission, if there is one, or the look that will tell.
func (p *permit) get(b *handle) (*grant, *look) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := p.until.Sub(b.clock.now())
	if rest <= b.opts.permission()/2 && p.look == nil {
		p.look = &look{done: make(chan struct{})}
		go b.lookForFence(p.look)
	}
	if rest > 0 {
		return &grant{p.saw, p.until}, nil
	}
	return nil, p.look
}

// forget has the next write look.
func (p *permit) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Time{}
}

func (b *handle) lookForFence(l *look) {
	ctx, cancel := context.WithTimeout(b.life, b.opts.Timeout)
	defer cancel()
	saw, at, err := b.readFence(ctx)
	b.permit.mu.Lock()
	defer b.permit.mu.Unlock()
	if err == nil {
		b.permit.saw, b.permit.until = saw, at.Add(b.opts.permission())
	}
	if err == nil && saw.shut {
		b.permit.until = time.Time{} // the next write looks again
		err = driver.Refused(saw.target)
	}
	b.permit.look = nil
	l.err = err
	close(l.done)
}

// readFence returns the fence, and AWS's time then.
func (b *handle) readFence(ctx context.Context) (fence, time.Time, error) {
	var saw fence
	var at time.Time
	_, err := b.call(ctx, func(option func(*dynamodb.Options)) error {
		out, err := b.db.GetItem(ctx, &dynamodb.GetItemInput{
			TableName: &b.table, Key: b.fence(), ConsistentRead: aws.Bool(true), ReturnConsumedCapacity: b.opts.capacity(),
		}, option)
		if err != nil {
			return err
		}
		b.opts.spent(out.ConsumedCapacity)
		saw, at = fenceOf(out.Item), b.clock.observe(out.ResultMetadata)
		return nil
	})
	return saw, at, err
}

// gate is the condition of a write that one gate of the announced fence is not shut.
func (b *handle) gate(f fence) types.TransactWriteItem {
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName: &b.table, Key: b.layout.gate(f.epoch, mathrand.N(gates)), ConditionExpression: aws.String("attribute_not_exists(pk)"),
	}}
}

// newFence announces a fence.
func (b *handle) newFence(target string) (it item, epoch []byte) {
	it = b.fence()
	epoch = make([]byte, 16)
	_, _ = rand.Read(epoch) // never fails
	it[attrStamp], it[attrData] = binaryValue(epoch), binaryValue([]byte(target))
	return it, epoch
}
