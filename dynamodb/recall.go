package dynamodb

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// The condition of a plan, that its base is stored, never holds again once it has failed. That something is absent can hold again,
// and an attempt that was held up on its way then takes effect although a later one was refused. So a transaction that changes
// something on such a condition has one more: that it was not recalled. A refusal beside attempts whose fate is unknown is
// answered after the recall, when they have taken effect or never will.

// mayHoldAgain reports whether something is changed on a condition that may hold again.
func (c *commit) mayHoldAgain() bool {
	changes, absent := false, false
	for i := range c.steps {
		s := &c.steps[i]
		changes = changes || s.plan != nil
		absent = absent || s.Verb == driver.Delete && s.skip || s.Verb == driver.Check && s.base == nil
	}
	return changes && absent
}

// notRecalled is the condition that the transaction was not recalled.
func (c *commit) notRecalled() types.TransactWriteItem {
	return c.table.check(c.table.gate(c.token[:], 0), absent)
}

// recalled recalls the last try, and reports whether it had taken effect before.
func (c *commit) recalled(ctx context.Context) (bool, error) {
	it := c.table.gate(c.token[:], 0)
	it[attrExpires] = expires(c.table.clock.Now(), tombstoneLife)
	if err := c.table.put(ctx, it, condition{}); err != nil {
		return false, request.Inconsistent(ctx, err)
	}
	for i := range c.steps {
		s := &c.steps[i]
		if s.plan == nil {
			continue
		}
		h, _, err := c.reader.get(ctx, storage.StrongConsistency, s.Key)
		if err != nil {
			return false, request.Inconsistent(ctx, err)
		}
		if made, err := s.plan.made(h, true); made || err != nil {
			return made, err
		}
	}
	return false, nil
}
