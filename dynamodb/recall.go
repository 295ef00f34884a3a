package dynamodb

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// The condition of a change, that its base is stored, never holds again once it has failed. That something is absent can hold again,
// and an attempt that was held up on its way then takes effect although a later one was refused. So a transaction that changes
// something on such a condition has one more: that it was not recalled. A refusal beside attempts whose outcome is unknown is
// answered after the recall, when they have taken effect or never will.

// mayHoldAgain reports whether something is changed on a condition that may hold again.
func (t *transaction) mayHoldAgain() bool {
	changes, absent := false, false
	for i := range t.steps {
		s := &t.steps[i]
		changes = changes || s.change != nil
		absent = absent || s.Verb == driver.Delete && s.skip || s.Verb == driver.Check && s.base == nil
	}
	return changes && absent
}

// recall is the condition that a transaction was not recalled.
func (b *handle) recall(token [16]byte) types.TransactWriteItem {
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName: &b.table, Key: b.layout.gate(token[:], 0), ConditionExpression: aws.String("attribute_not_exists(pk)"),
	}}
}

// recalled recalls the last try, and reports whether it had taken effect before.
func (t *transaction) recalled(ctx context.Context, token [16]byte) (bool, error) {
	it := t.b.layout.gate(token[:], 0)
	it[attrExpires] = expires(t.b.clock.now(), tombstoneLife)
	if err := t.b.put(ctx, it); err != nil {
		return false, inconsistent(ctx, err)
	}
	for i := range t.steps {
		s := &t.steps[i]
		if s.change == nil {
			continue
		}
		h, _, err := t.b.get(ctx, storage.StrongConsistency, s.Key)
		if err != nil {
			return false, inconsistent(ctx, err)
		}
		if made, err := s.change.made(h, true); made || err != nil {
			return made, err
		}
	}
	return false, nil
}
